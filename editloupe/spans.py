"""Shim of the former import path of `editloupe.telemetry.spans`."""

from editloupe.telemetry.spans import spans_to as spans_to
