#!/usr/bin/env bash
# Fetch Debian packages and those they need that are not installed, and unpack them below the home, without root.
#   unpack.sh NAME…     unpack      unpack.sh --env     print what a shell needs to find it
set -euo pipefail
root="$HOME/.local/debian" state="$HOME/.cache/debian"
if [ "${1:-}" = --env ]; then
    machine="$(uname -m)-linux-gnu"
    echo "export PATH=\"$root/usr/bin:$root/bin:$root/usr/games:\$PATH\""
    echo "export LD_LIBRARY_PATH=\"$root/usr/lib/$machine:$root/lib/$machine:$root/usr/lib:\${LD_LIBRARY_PATH:-}\""
    echo "export PERL5LIB=\"$root/usr/share/perl5:$(echo "$root/usr/lib/$machine"/perl5/*):\${PERL5LIB:-}\""
    echo "export PYTHONPATH=\"$root/usr/lib/python3/dist-packages:\${PYTHONPATH:-}\""
    exit
fi
[ "$#" -gt 0 ] || { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }
mkdir -p "$root" "$state/lists/partial" "$state/archives/partial"
options=(-o "Dir::State::Lists=$state/lists" -o "Dir::Cache=$state" -o "Dir::Cache::Archives=$state/archives"
         -o Debug::NoLocking=1 -o APT::Sandbox::User= -o APT::Install-Recommends=false)
apt-get "${options[@]}" -qq update
apt-get "${options[@]}" -qq -y --download-only install "$@"
for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
echo "unpacked below $root"
