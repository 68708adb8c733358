"""Whether a picture changed in the direction of two captions: CLIP's directional similarity through transformers.

The difference between the embeddings of two pictures against that between the embeddings of two texts, each embedding brought
to length 1 first (Gal et al., StyleGAN-NADA, 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from editloupe.pictures.pixels import Pixels
from editloupe.tools.models.devices import module
from editloupe.tools.models.features import DinoFeatures, FeatureSettings, Loaded, Vectors, prepared
from editloupe.tools.result_cache import key

CLIP = "openai/clip-vit-base-patch32"
"""The paper does not say which weights it used."""


class ClipEncoder(DinoFeatures):
    """A CLIP model, loaded as the feature models are; its weights are read at the first picture or text."""

    def __init__(self, settings: FeatureSettings | None = None) -> None:
        super().__init__(settings or FeatureSettings(CLIP))
        self.fingerprint = key("clip", self._settings.model, self._settings.precision)[:16]
        self._tokenizer: Any = None

    def embed_texts(self, texts: Sequence[str]) -> Vectors:
        """Return one vector a text; what is longer than the model reads is cut off at its end."""
        with self._lock:
            loaded = self._load()
            if self._tokenizer is None:
                self._tokenizer = self._open_tokenizer()
            tokens = self._tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").to(loaded.device)
            with module("torch").inference_mode():
                out = loaded.model.get_text_features(**tokens)
        return _vectors(out)

    def direction(self, before: Pixels, after: Pixels, text_before: str, text_after: str) -> float:
        """Return the cosine of both differences, −1 to 1; 0 where the picture or the text did not change at all."""
        one, other = _unit(self.embed([before, after]))
        left, right = _unit(self.embed_texts([text_before, text_after]))
        return directed(other - one, right - left)

    def _batch(self, loaded: Loaded, pictures: Sequence[Pixels], pick: Callable[[Any, Loaded], Any]) -> Vectors:
        torch = module("torch")
        ready = np.stack([prepared(p, loaded.size, loaded.mean, loaded.deviation) for p in pictures])
        with torch.inference_mode():
            values = torch.from_numpy(ready).to(loaded.device, loaded.model.dtype)
            return _vectors(loaded.model.get_image_features(pixel_values=values))

    def _open_tokenizer(self) -> Any:
        folder = Path(self._settings.model).expanduser()
        where = str(folder) if folder.is_dir() else self._settings.model
        local = folder.is_dir() or not self._settings.download
        return module("transformers").AutoTokenizer.from_pretrained(where, local_files_only=local)


def directed(pictures: Vectors, texts: Vectors) -> float:
    """Return the cosine of two differences, 0 where one of them is nothing.

    >>> directed(np.array([0.0, 2.0]), np.array([0.0, -1.0]))
    -1.0
    """
    scale = float(np.linalg.norm(pictures) * np.linalg.norm(texts))
    return max(-1.0, min(1.0, float(pictures @ texts) / scale)) if scale else 0.0


def _vectors(out: Any) -> Vectors:
    tensor = getattr(
        out, "pooler_output", out
    )  # a record of outputs or the tensor itself, by the version of transformers
    return np.asarray(tensor.float().cpu().numpy(), np.float64)


def _unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float64)
