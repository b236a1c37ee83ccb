#!/usr/bin/env bash
# Makes what an image build needs where no image registry can be reached:
#   1. a base image from this machine's own Debian packages (default name pipo-base:local),
#   2. the wheels of both lock files, for that image's Python, in deploy/wheels.
# Run again, it does only what is missing. Afterwards a build needs no network:
#   PIPO_BASE_IMAGE=pipo-base:local docker-compose build
# Needs: Debian, root, a Docker engine, a python3 with pip (another one: PYTHON=…).
set -euo pipefail
cd "$(dirname "$0")"

archive=
trap 'rm -f "$archive"' EXIT
usage="usage: make-base-image.sh [--fresh] [--image NAME]
  --fresh       make both again, for instance to take in security updates
  --image NAME  the image's name (default pipo-base:local)"
image=pipo-base:local
fresh=no
python=${PYTHON:-python3}
packages=python3,python3-venv,ca-certificates,netbase,tzdata
locks=(requirements-runtime.lock requirements-build.lock)
step_limit_s=600

say() { printf '%s\n' "make-base-image: $*"; }
fail() {
    printf '%s\n' "make-base-image: $1" "  hint: $2" >&2
    exit 1
}
bounded() { timeout --kill-after=10 "$step_limit_s" "$@"; }

while [ $# -gt 0 ]; do
    case $1 in
    --fresh) fresh=yes ;;
    --image)
        [ $# -ge 2 ] || { printf '%s\n' "$usage" >&2; exit 2; }
        image=$2
        shift
        ;;
    --help) printf '%s\n' "$usage"; exit 0 ;;
    *) printf '%s\n' "$usage" >&2; exit 2 ;;
    esac
    shift
done

docker version >/dev/null 2>&1 ||
    fail "no Docker engine answers" "start it, or ask for access: docker version tells why"

# --- the base image ------------------------------------------------------------------------
suite=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
recipe="$suite $packages 1"

made_from() { docker image inspect --format '{{index .Config.Labels "pipo.base.recipe"}}' "$image" 2>/dev/null || true; }

debian_sources() {
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' 'Component: main' \
        "Architecture: $(dpkg --print-architecture)" | sort -u
}

make_image() {
    [ -f /etc/debian_version ] && [ -n "$suite" ] ||
        fail "this machine is not a Debian" "give the build another base: PIPO_BASE_IMAGE=…"
    [ "$(id -u)" = 0 ] || fail "root is needed to unpack Debian packages" "run it with sudo"
    if [ -z "$(debian_sources)" ] || ! command -v mmdebstrap >/dev/null; then
        bounded apt-get -qq update
    fi
    command -v mmdebstrap >/dev/null ||
        DEBIAN_FRONTEND=noninteractive bounded \
            apt-get -qq install --yes --no-install-recommends mmdebstrap >/dev/null
    archive=$(mktemp --suffix=.tar)
    say "unpacking Debian $suite"
    debian_sources | bounded mmdebstrap --quiet --variant=minbase --include="$packages" \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        "$suite" "$archive" -
    bounded docker import \
        --change "LABEL pipo.base.recipe=\"$recipe\"" \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        --change 'ENV LANG=C.UTF-8' \
        --change 'CMD ["python3"]' \
        "$archive" "$image" >/dev/null
}

if [ "$fresh" = no ] && [ "$(made_from)" = "$recipe" ]; then
    say "$image is there"
else
    make_image
    say "$image made"
fi

# --- the wheels ----------------------------------------------------------------------------
# Which wheels fit is the image's business, not this machine's.
target=$(docker run --rm --network none "$image" python3 -c '
import os, platform, sys
glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[1]
print(f"{sys.version_info[0]}.{sys.version_info[1]}", glibc, platform.machine())')
read -r version glibc machine <<<"$target"
stamp=$(cat "${locks[@]}" <(printf '%s' "$target") | sha256sum | cut -d' ' -f1)

fetch_wheels() {
    local flags=(--python-version "$version" --implementation cp --abi "cp${version/./}" --abi abi3 --abi none)
    local minor
    for ((minor = glibc; minor >= 5; minor--)); do
        flags+=(--platform "manylinux_2_${minor}_${machine}")
    done
    flags+=(--platform "manylinux2014_${machine}" --platform "manylinux2010_${machine}" --platform "manylinux1_${machine}")
    "$python" -m pip --version >/dev/null 2>&1 ||
        fail "$python has no pip" "name one that has: PYTHON=.venv/bin/python deploy/make-base-image.sh"
    rm -f wheels/*.whl wheels/.stamp
    local lock
    for lock in "${locks[@]}"; do
        bounded "$python" -m pip download --quiet --require-hashes --no-deps --only-binary=:all: \
            "${flags[@]}" --dest wheels --requirement "$lock"
    done
    printf '%s\n' "$stamp" >wheels/.stamp
}

if [ "$fresh" = no ] && [ "$(cat wheels/.stamp 2>/dev/null)" = "$stamp" ]; then
    say "the wheels are there"
else
    say "fetching wheels for Python $version on $machine"
    fetch_wheels
fi
say "ready: PIPO_BASE_IMAGE=$image docker-compose up --build"
