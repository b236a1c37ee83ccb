"""The command line: a person's and a script's hands. It holds no rules.

`main` is the entry; each command group has a module of its own, imported when it is
used. `client` reaches the gateway or, without one, the pipelines themselves;
`render/` turns answers into text. `embedded` is the supervisor behind `pipo run`
(`foreground`) and the engine in the background (`engine_process`): it imports
neither grpc nor aiohttp.
"""
