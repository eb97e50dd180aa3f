#!/usr/bin/env bash
# Honest solution: reads the four pages in the browser, books with the form, and takes the reference off the page.
set -euo pipefail
site=http://127.0.0.1:8360 results=/tmp_workspace/results
for page in "" ships.html notices.html tariff.html; do
    agent-browser open "$site/$page"
    agent-browser wait "main table tr:nth-child(2), main h2"
    agent-browser eval "document.querySelectorAll('details').forEach((one) => { one.open = true; })" > /dev/null
    agent-browser get text main
done
agent-browser open "$site/book.html"
agent-browser wait --fn "document.querySelectorAll('option').length > 8"
agent-browser fill "[name=date]" 2026-06-11
agent-browser select "[name=sailing]" NS-4
agent-browser select "[name=vehicle]" B
agent-browser fill "[name=adults]" 1
agent-browser fill "[name=name]" "Elin Brandt"
agent-browser fill "[name=plate]" "NV 48213"
agent-browser wait --text "Total: 760 kr."
agent-browser click button
agent-browser wait "#reference"
reference=$(agent-browser get text "#reference")
agent-browser screenshot "$results/confirmation.png"
cat > "$results/booking.json" <<END
{
  "reference": "$reference", "departure": "12:10", "arrival": "14:05", "ship": "Havørn", "total": 760,
  "ruled_out": {
    "09:15": "leaves before we can be at the quay",
    "10:40": "Terna takes vehicles up to 2.40 m only",
    "11:30": "does not run: quay works in Skarholm",
    "12:45": "Alke costs 95 kr. more",
    "14:20": "arrives too late, and Terna is too low"
  }
}
END
agent-browser close
