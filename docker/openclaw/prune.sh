#!/bin/sh
# Removes from node_modules what no turn reads: maps, types, documents, other platforms' programs, the web interface
# and the bundles for workers in a cloud. OpenClaw's own skills and templates are documents that turns do read.
set -eu
cd node_modules
case $(uname -m) in
    x86_64) keep=linux_x64 ;;
    aarch64) keep=linux_arm64 ;;
    *) keep=linux ;;
esac
find . -type f -name '*.map' -delete
find . -type f \( -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' \) ! -path './typescript/*' -delete
find . -type f \( -iname '*.md' -o -name '*.mdx' -o -name '*.markdown' \) ! -ipath '*license*' ! -path './openclaw/*' -delete
find . -type f -name '*.ts' ! -path './openclaw/*' ! -path './typescript/*' -delete
find . -path '*/koffi/build/koffi/*' -name 'koffi.node' ! -path "*/$keep/*" -delete
find openclaw/docs -type f ! -path 'openclaw/docs/reference/templates/*' -delete
rm -rf bun-types @types openclaw/dist/control-ui openclaw/dist/worker/worker.mjs openclaw/dist/worker/sqlite-store.worker.mjs
rm -f openclaw/CHANGELOG.md openclaw/README.md
find . -type d -empty -delete
