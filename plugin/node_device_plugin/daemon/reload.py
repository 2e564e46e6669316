"""Reloads the running plugin's configuration on SIGHUP, on request, and after a file change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Callable

from ..declaration import DeclarationError, Problem
from ..declaration.configuration_file import LoadedConfiguration, Source
from ..status_api.pages import Outcome
from ..support.bounded_calls import BoundedCalls, Key, NoAnswer
from ..telemetry import metrics
from ..telemetry.logs import Log

log = Log(__name__)

#: Maximum seconds for reading the file.
_LIMIT = 30.0


class Reloader:
    """Applies the configuration file after each change, but refuses an invalid file.

    source: where the file is. loaded: the configuration in use. apply: applies another configuration, or
    changes nothing and raises DeclarationError.
    """

    def __init__(
        self, source: Source, loaded: LoadedConfiguration, apply: Callable[[LoadedConfiguration], Awaitable[None]]
    ) -> None:
        self.source = source
        self.loaded = loaded
        #: The outcome of the last reload.
        self.last = Outcome("unchanged")
        self._apply = apply
        self._calls = BoundedCalls(_LIMIT)
        self._one_at_a_time = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[Outcome]] = []

    def ask(self) -> None:
        """Request a reload without waiting for it (for signal handlers and file watchers)."""
        self._wanted.set()

    async def run(self) -> None:
        """Reload after each request, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            waiting, self._waiting = self._waiting, []
            async with self._one_at_a_time:
                self.last = await self._reload()
            metrics.RELOADS.increment(self.last.result)
            for answer in waiting:
                if not answer.done():
                    answer.set_result(self.last)

    async def reload(self) -> Outcome:
        """Reload and return the outcome. ``run`` reloads even if the caller stops waiting."""
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self.ask()
        return await answer

    async def withdraw(self) -> Outcome:
        """Offer no resource until the next reload, as before an uninstall."""
        async with self._one_at_a_time:
            empty = self.loaded.configuration._replace(resources=())
            self.loaded = self.loaded._replace(configuration=empty, sha256="")
            await self._apply(self.loaded)
        return Outcome("applied")

    async def _reload(self) -> Outcome:
        try:
            # Use a thread, because a file with thousands of devices takes long to parse.
            loaded = await self._calls.call(Key("", "configuration"), self.source.load)
            if loaded.sha256 == self.loaded.sha256:
                log.info("the configuration is unchanged", sha256=loaded.sha256[:12])
                return Outcome("unchanged")
            await self._apply(loaded)
        except DeclarationError as error:
            return self._refused(error.problems)
        except NoAnswer as error:
            return self._refused([Problem(self.source.chosen, f"reading the file {error}")])
        self.loaded = loaded
        return Outcome("applied")

    def _refused(self, problems: Sequence[Problem]) -> Outcome:
        for problem in problems:
            log.error(
                "refused the configuration; the previous one stays in use",
                sha256=self.loaded.sha256[:12],
                error=problem,
            )
        return Outcome("refused", tuple(problems))
