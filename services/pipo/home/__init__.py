"""The Pipo home: the folder that all services of one installation share.

`paths` names its files and makes its folders, `config` reads config.yaml, `registry`
says who runs where, `engine` who brought it all up, `directory` remembers it for half a
second, `leases` says who is alive, `desired` what should run, `sent` keeps pipelines that came
as text; `tokens`, `secrets` and `bots` hold what must not leak.
It never starts a process, opens a journal or dials anybody.
"""

from pipo.home.paths import Home, PipelineHome, home_from

__all__ = ["Home", "PipelineHome", "home_from"]
