"""Plugin package for lmms-eval: `LMMS_EVAL_PLUGINS=editloupe.lmms_eval` adds tasks that EditLoupe judges."""

__all__: list[str] = []
