#!/usr/bin/env bash
# Honest solution: works on the screen with mouse and keyboard, reads the new numbers off the window.
set -euo pipefail
results=/tmp_workspace/results
tree() { desktop-tree register.py; }
await() {  # words that must appear among the widgets
    local end=$((SECONDS + 20))
    until tree | grep -qF -- "$1"; do
        [ "$SECONDS" -lt "$end" ] || { echo "never on the screen: $1" >&2; tree >&2; return 1; }
        sleep 0.1
    done
}
place() { tree | grep -m 1 -F -- "$1" | sed 's/.* at \(-\?[0-9]*\),\(-\?[0-9]*\).*/\1 \2/'; }
click() { await "$1"; xdotool mousemove --sync $(place "$1") click 1; }
fill() { click "text '$1'"; xdotool key ctrl+a; xdotool type --delay 5 -- "$2"; }

enter() {  # date, item, place
    click "push button 'New find'"
    await "dialog 'New find'"
    fill "Found on (YYYY-MM-DD)" "$1"; fill Item "$2"; fill Place "$3"
    click "push button 'Save'"
    await "'Saved as LP-"
    tree | sed -n "s/.*'Saved as \(LP-[0-9]*\)'.*/\1/p" | head -n 1
}

await "'LP-0412'"
wmctrl -a "Lost Property"
flask=$(enter 2026-05-16 "green thermos flask, dent in the base" "Hall B, row 7")
click "'LP-0412'"
await "'Selected: LP-0412'"
click "push button 'Hand out'"
await "dialog 'Hand out LP-0412'"
fill Receiver "Folasade Adeyemi"
xdotool key Return
await "table cell 'Folasade Adeyemi'"
wallet=$(enter 2026-05-15 "brown leather wallet, library card inside" "cloakroom")
desktop-screenshot "$results/register.png"
cat > "$results/handover.json" <<END
{
  "new": {"$flask": "green thermos flask, dent in the base", "$wallet": "brown leather wallet, library card inside"},
  "handed_out": {"LP-0412": "Folasade Adeyemi"},
  "left": {"LP-0421": "The man could not say what is engraved in the bracelet; he may come back with his wife."}
}
END
