#!/bin/sh
# Writes the two lock files of the image: what it runs with, what builds it.
# The versions are those of requirements.lock, so that tests and image agree.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
pins=$(mktemp)
trap 'rm -f "$pins"' EXIT
sed -n 's/^\([a-z0-9][^ ]*==[^ ]*\).*/\1/p' requirements.lock > "$pins"

compile() {
    UV_CUSTOM_COMPILE_COMMAND=deploy/lock.sh "$uv" pip compile --quiet --universal \
        --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
        --constraint "$pins" "$1" -o "$2"
}

compile pyproject.toml deploy/requirements-runtime.lock
compile deploy/requirements-build.in deploy/requirements-build.lock
