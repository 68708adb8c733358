"""DINO and OWL-ViT with tiny random weights, saved as folders that the real loading code reads."""

from __future__ import annotations

import json
from pathlib import Path


def save_tiny_dino(folder: Path, version: int = 3, seed: int = 0) -> Path:
    """Write a DINOv3 or DINOv2 of 32 dimensions with the preprocessor file a published model has."""
    import torch
    from transformers import Dinov2Config, Dinov2Model, DINOv3ViTConfig, DINOv3ViTModel

    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    if version == 3:
        model = DINOv3ViTModel(DINOv3ViTConfig(patch_size=16, intermediate_size=64, image_size=64, **shape))
    else:
        model = Dinov2Model(Dinov2Config(patch_size=14, image_size=56, **shape))
    model.save_pretrained(folder)
    size = {"size": {"height": 64, "width": 64}} if version == 3 else {"size": {"shortest_edge": 64}}
    crop = {} if version == 3 else {"crop_size": {"height": 56, "width": 56}}
    facts = {**size, **crop, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    (folder / "preprocessor_config.json").write_text(json.dumps(facts))
    return folder


def save_tiny_owl(folder: Path, seed: int = 0) -> Path:
    """Write an OWL-ViT of 16 dimensions with its processor."""
    import torch
    from transformers import (
        CLIPTokenizer,
        OwlViTConfig,
        OwlViTForObjectDetection,
        OwlViTImageProcessorPil,
        OwlViTProcessor,
    )

    folder.mkdir(parents=True, exist_ok=True)
    letters = [*"abcdefghijklmnopqrstuvwxyz", *(f"{c}</w>" for c in "abcdefghijklmnopqrstuvwxyz")]
    vocabulary = {token: i for i, token in enumerate([*letters, "<|startoftext|>", "<|endoftext|>"])}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=16)
    torch.manual_seed(seed)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = OwlViTConfig(
        text_config={
            **small,
            "vocab_size": len(vocabulary),
            "max_position_embeddings": 16,
            "bos_token_id": len(letters),
            "eos_token_id": len(letters) + 1,
            "pad_token_id": 0,
        },
        vision_config={**small, "image_size": 64, "patch_size": 16},
        projection_dim=16,
    )
    OwlViTForObjectDetection(config).eval().save_pretrained(folder)
    images = OwlViTImageProcessorPil(size={"height": 64, "width": 64}, crop_size={"height": 64, "width": 64})
    OwlViTProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder
