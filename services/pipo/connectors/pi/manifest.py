"""pi: an answer from Pi, the command-line agent."""

from pipo.connectors.agent_schema import cli_agent

MANIFEST = cli_agent("pi", "Pi")
