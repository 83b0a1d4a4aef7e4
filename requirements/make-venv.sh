#!/bin/sh
# Makes a virtual environment with pip: make-venv.sh PYTHON DIR. Debian ships Python without ensurepip. Root then installs
# the missing package through apt; a normal user gets pip's wheel out of Debian's archive, and nothing is installed.
set -eu
python=$1
dir=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    found=$("$python" --version 2>&1) && found="is $found" || found="can't be run"
    echo "Pilotfish needs Python 3.11 or newer; '$python' $found." >&2
    echo "Name another one: make PYTHON=/path/to/python3.12 ..." >&2
    exit 1
fi

# pip's wheel, unpacked below $1. apt checks its signature; its lists and files are kept in $1, which needs no root.
unpack_pip() {
    own_apt() { apt-get --quiet --quiet -o Dir::State::Lists="$1/lists" -o Dir::Cache="$1/cache" "$2" $3; }
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
    (cd "$1" && own_apt . update "" && own_apt . download python3-pip-whl) && dpkg -x "$1"/python3-pip-whl_*.deb "$1"
}

make_venv() {
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv --clear "$dir"
        return
    fi
    package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "Installing $package." >&2
        install_package="env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --quiet $package"
        # A fresh system has no lists of packages: the first try then fails, and its message would mislead.
        $install_package >/dev/null 2>&1 || { apt-get update --quiet --quiet && $install_package >/dev/null; }
        "$python" -m venv --clear "$dir"
        return
    fi
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    if ! { command -v apt-get >/dev/null && unpack_pip "$scratch" && "$python" -m venv --clear --without-pip "$dir"; }; then
        echo "'$python' comes without venv. Install it and try again: sudo apt-get install $package" >&2
        exit 1
    fi
    wheel=$(echo "$scratch"/usr/share/python-wheels/pip-*.whl)
    "$dir/bin/python" "$wheel/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
}

# One that was begun and not finished, or whose Python is gone, is made anew.
"$dir/bin/python" -m pip --version >/dev/null 2>&1 || make_venv
