"""The variables that expressions and templates see (facts 5.1).

`meta` costs a dictionary per unit and step, so it is made only where a plan's
templates name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipo.payload import decode_own
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.flow.units import Unit


class Scopes:
    """Makes the scope of one unit at one step. `env` holds only what the engine allows.

    `secrets` are those of the version in force; a version that declares others has its own.
    """

    def __init__(
        self, pipeline: str, *, env: Mapping[str, str], secrets: Mapping[str, str]
    ) -> None:
        self._pipeline = pipeline
        self._env = env
        self._secrets = secrets
        self._of_version: dict[int, Mapping[str, str]] = {}

    def keep(self, version: int, secrets: Mapping[str, str]) -> None:
        """What packets of a version see, where it declares other secrets."""
        self._of_version[version] = secrets

    def rules(self, data: Any, meta: Mapping[str, Any]) -> dict[str, Any]:
        """What a rule or a message sees: no secrets."""
        return {"data": data, "meta": meta, "env": self._env}

    def step(self, unit: Unit, node: str, *, with_meta: bool) -> dict[str, Any]:
        """What a node's `with:` sees."""
        scope = {"data": unit.data, "env": self._env, "secrets": self._secrets_of(unit.version)}
        if with_meta:
            scope["meta"] = self.meta(unit, node)
        return scope

    def check(self, unit: Unit, plan: Plan, result: bytes) -> dict[str, Any]:
        """What `delivered.with` sees, as far as it names it."""
        scope = {
            "data": unit.data,
            "env": self._env,
            "secrets": self._secrets_of(plan.version),
            "output": plan.pipeline.output.raw,
        }
        if "meta" in plan.check_settings.names:
            scope["meta"] = self.meta(unit, "delivered", key=unit.key)
        if "result" in plan.check_settings.names:
            scope["result"] = decode_own(result)
        return scope

    def verdict(self, unit: Unit, plan: Plan, result: bytes) -> dict[str, Any]:
        """What a message of `delivered.on_fail` sees."""
        return {
            "data": unit.data,
            "meta": self.meta(unit, "delivered", key=unit.key),
            "env": self._env,
            "output": plan.pipeline.output.raw,
            "result": decode_own(result),
        }

    def pipeline(self, version: int) -> dict[str, Any]:
        """What a text about the pipeline itself sees; it is about no packet."""
        return {"meta": {"pipeline": self._pipeline, "version": version}, "env": self._env}

    def lifetime(self, stats: Mapping[str, Any]) -> dict[str, Any]:
        """What `lifetime.until` sees."""
        return {"stats": stats, "env": self._env}

    def inputs(self) -> dict[str, Any]:
        """What an input's `with:` sees."""
        return {"env": self._env, "secrets": self._secrets}

    def _secrets_of(self, version: int) -> Mapping[str, str]:
        return self._of_version.get(version, self._secrets)

    def meta(self, unit: Unit, node: str, *, key: str | None = None) -> dict[str, Any]:
        """`meta` at a step. `key` is the explicit key, where the step knows it (O052)."""
        return {
            "packet_id": unit.packet_id,
            "branch": unit.branch,
            "key": unit.id if key is None else key,
            "pipeline": self._pipeline,
            "version": unit.version,
            "node": node,
            "input": unit.input,
            "trigger": unit.trigger,
            "source": unit.source,
            "received_at": unit.received_at,
            "attempt": unit.attempt + 1,
            "hops": unit.hops,
            "iteration": unit.iteration,
            "upstream": unit.upstream,
        }
