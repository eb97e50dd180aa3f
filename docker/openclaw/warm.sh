#!/bin/sh
# Runs one turn without a model, as the executor's user, so that the modules of a turn are compiled once, in the image.
# The compile cache names its folder after the user; root, who may run tasks too, shares the agent's.
set -eu
cache=$1
install -d -o agent -g agent "$cache" /tmp/warm
cat > /tmp/warm/openclaw.json <<'C'
{"models": {"providers": {"none": {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "none", "api": "openai-completions",
  "models": [{"id": "none", "name": "none"}]}}},
 "agents": {"defaults": {"workspace": "/tmp/warm/workspace", "model": {"primary": "none/none"}}},
 "gateway": {"mode": "local"}, "browser": {"enabled": false}}
C
mkdir -p /tmp/warm/.openclaw/agents/main/agent
echo '{"retry": {"enabled": false, "maxRetries": 0, "provider": {"maxRetries": 0}}}' \
    > /tmp/warm/.openclaw/agents/main/agent/settings.json
mv /tmp/warm/openclaw.json /tmp/warm/.openclaw/
chown -R agent: /tmp/warm
runuser -u agent -- env HOME=/tmp/warm NODE_COMPILE_CACHE="$cache" OPENCLAW_NO_RESPAWN=1 \
    OPENCLAW_PACKAGED_COMPILE_CACHE_RESPAWNED=1 \
    timeout 300 openclaw agent --local --session-id warm --timeout 60 --json --message Hello || :
rm -rf /tmp/warm /tmp/openclaw* /tmp/jiti /tmp/node-compile-cache
for folder in "$cache"/v*-1000; do
    ln -s "$(basename "$folder")" "${folder%-1000}-0"
done
chown -R root: "$cache"
