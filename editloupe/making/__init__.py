"""Make a benchmark of image edits from your own pictures.

Start with questions about pictures and their answers. A model turns each question into an edit instruction, a detector or a
person marks the target, and an image editor makes the reference. People review every sample before it enters the manifest.
"""

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.making.folder import MakingFolder
    from editloupe.making.paste import frame_crop, paste_crop
    from editloupe.making.paste import framed as framed  # former name
    from editloupe.making.paste import pasted as pasted  # former name
    from editloupe.making.pipeline import Pipeline
    from editloupe.making.questions import read_questions
    from editloupe.making.reviews import review, review_agreement

__all__ = ["MakingFolder", "Pipeline", "frame_crop", "paste_crop", "read_questions", "review", "review_agreement"]

__getattr__, __dir__ = lazy_names(__name__)
