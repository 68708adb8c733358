"""Process the requests of concurrent threads in batches."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from editloupe.pictures.pixels import Pixels, hash_pixels

GATHER = 0.005
"""Seconds that requests wait for those of other threads."""
Request = tuple[Pixels, Any]
"""A picture and a hashable parameter, such as a phrase."""


class Batcher:
    """Collects the requests of any number of threads and processes those with pictures of the same size together.

    One batch is processed at a time, by one of the waiting threads; the oldest request is always in the next one. Equal
    requests that wait at the same time are processed once. If a batch fails, its requests are processed one by one, so
    that only the request at fault fails.

    Args:
        work: Returns the results of several requests, in their order. Called by one thread at a time.
        batch_size: Most requests of a batch.
    """

    def __init__(self, work: Callable[[Sequence[Request]], Sequence[Any]], batch_size: int) -> None:
        self._work, self._batch_size = work, batch_size
        self._waiting: dict[tuple[str, Any], tuple[Request, Future[Any]]] = {}
        self._change = threading.Condition()
        self._busy = False
        self.batches: Counter[int] = Counter()
        """How many batches there were of each size."""

    @property
    def fill(self) -> float:
        """The mean size of a batch as a share of `batch_size`; 0 before the first batch."""
        count = self.batches.total()
        return (
            sum(size * number for size, number in self.batches.items()) / (self._batch_size * count) if count else 0.0
        )

    def process(self, requests: Sequence[Request]) -> list[Any]:
        """Return the results of requests, in their order.

        Raises:
            Exception: The error of the first request that failed.
        """
        keyed = [((hash_pixels(request[0]), request[1]), request) for request in requests]
        with self._change:
            answers = [self._waiting.setdefault(key, (request, Future()))[1] for key, request in keyed]
        time.sleep(GATHER)
        while not all(answer.done() for answer in answers):
            with self._change:
                if self._busy:
                    self._change.wait()
                    continue
                self._busy, batch = True, self._take_batch()
            try:
                self._process_batch(batch)
            except BaseException as error:  # an interrupt of this thread
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                raise
            finally:
                with self._change:
                    self._busy = False
                    self._change.notify_all()
        return [answer.result() for answer in answers]

    def _take_batch(self) -> list[tuple[Request, Future[Any]]]:
        """Remove the oldest waiting request and others with pictures of its size from the queue."""
        sizes = {key: request[0].shape for key, (request, _) in self._waiting.items()}
        keys = [key for key, size in sizes.items() if size == next(iter(sizes.values()))][: self._batch_size]
        return [self._waiting.pop(key) for key in keys]

    def _process_batch(self, batch: Sequence[tuple[Request, Future[Any]]]) -> None:
        if not batch:  # another thread has taken the last requests and is about to finish them
            return
        self.batches[len(batch)] += 1
        try:
            results = self._work([request for request, _ in batch])
            if len(results) != len(batch):
                raise ValueError(f"{len(batch)} requests have {len(results)} results")
        except Exception as error:
            if len(batch) > 1:
                for item in batch:
                    self._process_batch([item])
            else:
                batch[0][1].set_exception(error)
            return
        for (_, answer), result in zip(batch, results, strict=True):
            answer.set_result(result)
