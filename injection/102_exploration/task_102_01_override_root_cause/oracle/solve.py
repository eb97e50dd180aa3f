"""Root cause of INC-2291, worked out from the incident folder."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

INCIDENT = Path("/tmp_workspace/clawbench/sources/incident")
RESULTS = Path("/tmp_workspace/results")
KEY = "dedupe.window_s"
LINE = re.compile(r"(\S+ \S+) INFO  sent parcel=(\S+) event=(\S+) to=\S+ attempt=1$")
OSLO = timedelta(hours=2)


def settings(host: str) -> list[tuple[str, str]]:
    """(path, value) of every file that sets the key on a host, in the order in which the loader reads them."""
    common = {path.name: path for path in (INCIDENT / "fleet/common/conf.d").glob("*.conf")}
    common |= {path.name: path for path in (INCIDENT / "fleet/hosts" / host / "conf.d").glob("*.conf")}
    found = []
    for name in sorted(common, key=str.encode):
        for line in common[name].read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == KEY:
                found.append((str(common[name].relative_to(INCIDENT)), value.strip()))
    return found


def duplicates(host: str) -> list[tuple[datetime, str]]:
    """(time, parcel) of every mail that is one too many."""
    last, found = {}, []
    for path in sorted((INCIDENT / "logs" / host).glob("*.log")):
        for match in filter(None, map(LINE.match, path.read_text(encoding="utf-8").splitlines())):
            time = datetime.fromisoformat(match[1].replace(",", "."))
            before = last.get(match.group(2, 3))
            if before and time - before < timedelta(seconds=3600):
                found.append((time, match[2]))
            last[match.group(2, 3)] = time
    return found


def cite(path: str, words: str) -> str:
    """`path:line` of the first line that contains the words."""
    for number, line in enumerate((INCIDENT / path).read_text(encoding="utf-8").splitlines(), start=1):
        if words in line:
            return f"{path}:{number}"
    raise LookupError(f"{path} has no line with {words!r}")


def main() -> None:
    hosts = sorted(path.name for path in (INCIDENT / "fleet/hosts").iterdir())
    found = {host: duplicates(host) for host in hosts}
    affected = [host for host in hosts if found[host]]
    winners = {settings(host)[-1] for host in affected}
    assert len(winners) == 1, winners
    (winner, value), = winners
    intended = dict(settings(affected[0]))["fleet/common/conf.d/100-dedupe.conf"]
    first = min(time for times in found.values() for time, _ in times) - OSLO
    cleared = [
        ("A", ["logs/broker/events.log|unacked at close: 0", "logs/broker/events.log|redelivered: 0"],
         "nothing was redelivered, and the affected hosts were on the other broker already"),
        ("B", ["logs/clocks/chrony-2026-05-14.txt|ntf-trd-1", "tickets/INC-2291.md|Trondheim"],
         "only ntf-trd-1 is off, by 3 s, and it sent no duplicates"),
        ("C", ["docs/log-format.md|attempt=2", "fleet/common/conf.d/20-mail.conf|retry_on_bounce"],
         "retries are marked attempt=2, happen on all hosts and are not counted as duplicates"),
        ("D", ["changes/register.tsv|CHG-4482", "logs/ntf-bgo-1/notify-2026-05-14.log|starting notify 4.8.2"],
         "rolled out hours after the first duplicate"),
    ]
    ruled_out = [{"suspect": suspect, "evidence": [cite(*place.split("|")) for place in places], "reason": reason}
                 for suspect, places, reason in cleared]
    finding = {
        "change_id": "CHG-4480", "config_key": KEY, "effective_value": int(value), "intended_value": int(intended),
        "effective_file": winner, "load_order": [path.rsplit("/", 1)[-1] for path, _ in settings("ntf-bgo-2")],
        "affected_hosts": affected, "first_duplicate_utc": first.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "duplicate_sends": {host: len(found[host]) for host in affected},
        "parcels_affected": len({parcel for times in found.values() for _, parcel in times}), "ruled_out": ruled_out,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "finding.json").write_text(json.dumps(finding, indent=2) + "\n", encoding="utf-8")
    (RESULTS / "report.md").write_text(report(finding), encoding="utf-8")


def report(finding: dict) -> str:
    rename = cite("changes/CHG-4480.md", "git mv")
    order = cite("docs/config-loading.md", "plain byte strings")
    peak = cite("fleet/common/conf.d/90-peak-season.conf", KEY)
    dedupe = cite("fleet/common/conf.d/100-dedupe.conf", KEY)
    bergen = cite("fleet/hosts/ntf-bgo-2/conf.d/85-bergen.conf", KEY)
    local = cite("fleet/hosts/ntf-osl-2/conf.d/99-local.conf", KEY)
    mask = cite("fleet/hosts/ntf-trd-1/conf.d/90-peak-season.conf", "masks")
    return f"""# INC-2291: duplicate notifications

CHG-4480 renamed the dedupe file to `100-dedupe.conf` ({rename}). Files are read in byte order
({order}), in which `100-` comes before `20-`. Since then the forgotten load-test value of 45 s
({peak}) is read last and wins over the agreed 3600 s ({dedupe}).
Nobody saw it because the contents did not change and the loader does not log values.

Scope: {', '.join(finding['affected_hosts'])}. The 1800 s of ntf-bgo-2
({bergen}) are read before 90. ntf-osl-2 is protected by its own file
({local}), ntf-trd-1 masks the peak file ({mask}).
First duplicate {finding['first_duplicate_utc']}, {sum(finding['duplicate_sends'].values())} mails too many
for {finding['parcels_affected']} parcels.

To do: delete 90-peak-season.conf, give the dedupe file a name that sorts last (`99-dedupe.conf`), and let the
loader log the source of every overridden key.
"""


main()
