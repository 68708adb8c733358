"""Stopping a session whose first edits all fail in the same way, before thousands are filed."""

from __future__ import annotations

from editloupe.types import OF_THE_SERVER, Judgement, Reason, Unjudged, UserError

ALIKE = 16
"""Edits that may fail alike at the start before the user is asked."""
REQUEST_FAILED = OF_THE_SERVER | {Reason.REFUSED, Reason.INTERNAL}
"""Reasons that come of the server, the network or the set-up; what a judge answers unreadably is its own doing."""


class FirstFailures:
    """Looks at a session's judgements until one of them is not like the others."""

    def __init__(self, alike: int = ALIKE) -> None:
        self._alike = alike
        self._reason: Reason | None = None
        self._count = 0
        self._over = False

    def add(self, judgement: Judgement) -> None:
        """Look at one more judgement; raises UserError where so many in a row, from the first on, failed alike."""
        if self._over or not judgement.verdicts:
            return
        failed = [v for v in judgement.verdicts if isinstance(v, Unjudged) and v.reason in REQUEST_FAILED]
        if not failed and all(isinstance(v, Unjudged) for v in judgement.verdicts):
            return  # nothing was asked for it
        reasons = {outcome.reason for outcome in failed}
        alike = len(failed) == len(judgement.verdicts) and len(reasons | {self._reason or failed[0].reason}) == 1
        if not alike:
            self._over = True
            return
        self._reason, self._count = failed[0].reason, self._count + 1
        if self._count >= self._alike:
            raise UserError(
                f"the first {self._count} edits all failed in the same way ({self._reason.value}: {failed[0].detail}); "
                "mend that and give the same command again, or add --keep-going to go on all the same"
            )
