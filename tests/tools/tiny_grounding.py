"""Grounding DINO with tiny random weights, saved as a folder that the real loading path reads."""

from __future__ import annotations

from pathlib import Path

WORDS = "a the red blue cup car ball dog on table remove from of and to change color . , [PAD] [UNK] [CLS] [SEP] [MASK]"


def save_tiny_grounding_dino(folder: Path, seed: int = 0) -> Path:
    """Write config, processor and weights; every run with one seed writes the same weights."""
    import torch
    from transformers import (
        BertConfig,
        BertTokenizerFast,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessorPil,
        GroundingDinoProcessor,
        SwinConfig,
    )

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = sorted(WORDS.split(), key=lambda word: not word.startswith("["))
    words = folder / "vocab.txt"
    words.write_text("\n".join(vocabulary) + "\n")
    tokenizer = BertTokenizerFast(vocab=str(words), do_lower_case=True)
    images = GroundingDinoImageProcessorPil(size={"shortest_edge": 96, "longest_edge": 160})
    torch.manual_seed(seed)
    backbone = SwinConfig(
        image_size=96,
        patch_size=4,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 2, 2],
        window_size=4,
        out_features=["stage2", "stage3", "stage4"],
    )
    text = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    config = GroundingDinoConfig(
        backbone_config=backbone,
        text_config=text,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=20,
        max_text_len=32,
    )
    model = GroundingDinoForObjectDetection(config).eval()
    model.save_pretrained(folder)
    GroundingDinoProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder
