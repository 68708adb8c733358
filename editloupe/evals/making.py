"""Shim of the former import path of `editloupe.making`."""

from editloupe.making import MakingFolder as MakingFolder
from editloupe.making import review as review
