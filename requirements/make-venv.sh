#!/bin/sh
# Makes a virtual environment: make-venv.sh PYTHON DIR. Debian ships Python without ensurepip: then, as root, the missing
# package is installed through apt; otherwise this says what to install.
set -eu
python=$1
dir=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    found=$("$python" --version 2>&1) && found="is $found" || found="can't be run"
    echo "Pilotfish needs Python 3.11 or newer; '$python' $found." >&2
    echo "Name another one: make PYTHON=/path/to/python3.12 ..." >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get install --yes --quiet "$package" || { apt-get update --quiet && apt-get install --yes --quiet "$package"; }
    else
        echo "'$python' comes without venv. Install it and try again: sudo apt-get install $package" >&2
        exit 1
    fi
fi
# One that was begun and not finished, or whose Python is gone, is made anew.
"$dir/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$dir"
