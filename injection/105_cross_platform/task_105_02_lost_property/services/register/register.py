"""The market hall's register of lost property: a window, a list, three buttons. Its file is its own account's alone."""

import json
import os
import re
from datetime import date
from pathlib import Path

import gi

gi.require_version("Gtk", "3.0")
from gi.repository import Gtk  # noqa: E402

FILE = Path("register.json")
COLUMNS = ("No.", "Found on", "Item", "Place", "Status", "Receiver")
FIELDS = ("number", "found_on", "item", "place", "status", "receiver")
SEED = (
    ("LP-0412", "2026-05-02", "black umbrella, wooden handle", "Hall A", "stored", ""),
    ("LP-0413", "2026-05-02", "child's glove, red", "café", "stored", ""),
    ("LP-0415", "2026-05-06", "key ring, 3 keys, blue tag 27", "Hall C", "stored", ""),
    ("LP-0416", "2026-05-06", "grey wool scarf", "stairs", "stored", ""),
    ("LP-0418", "2026-05-09", "reading glasses in brown case", "Hall B, row 2", "stored", ""),
    ("LP-0419", "2026-05-09", "black umbrella, curved plastic handle", "entrance", "stored", ""),
    ("LP-0420", "2026-05-12", "phone charger, white", "room 4", "handed out", "Michael Okafor"),
    ("LP-0421", "2026-05-13", "silver bracelet, engraved", "Hall A", "stored", ""),
)
NEXT_NUMBER = 437
"""The numbers between belong to the register of the other hall."""


class Register:
    """The entries, saved with a journal after every change."""

    def __init__(self):
        self.entries = [dict(zip(FIELDS, row, strict=True)) for row in SEED]
        self.journal, self.next = [], NEXT_NUMBER
        self.save()

    def save(self):
        part = FILE.with_suffix(".part")
        part.write_text(json.dumps({"entries": self.entries, "journal": self.journal}, indent=1), "utf-8")
        part.replace(FILE)

    def note(self, action, number):
        self.journal.append({"action": action, "number": number})
        self.save()

    def add(self, found_on, item, place):
        number = f"LP-{self.next:04d}"
        self.next += 3
        values = (number, found_on, item, place, "stored", "")
        self.entries.append(dict(zip(FIELDS, values, strict=True)))
        self.note("enter", number)
        return number

    def change(self, number, action, **values):
        next(entry for entry in self.entries if entry["number"] == number).update(values)
        self.note(action, number)


class Window(Gtk.Window):
    """The list and its buttons."""

    def __init__(self, register):
        super().__init__(title="Lost Property - Brackwater market hall")
        self.register = register
        self.set_default_size(1040, 620)
        self.connect("delete-event", lambda *_: True)  # the desk's program is not closed
        self.rows = Gtk.ListStore(*[str] * len(FIELDS))
        self.view = Gtk.TreeView(model=self.rows)
        for index, title in enumerate(COLUMNS):
            column = Gtk.TreeViewColumn(title, Gtk.CellRendererText(), text=index)
            column.set_resizable(True)
            self.view.append_column(column)
        self.view.get_selection().connect("changed", lambda *_: self.follow())
        frame = Gtk.ScrolledWindow(vexpand=True)
        frame.add(self.view)
        bar = Gtk.Box(spacing=8)
        self.buttons = {}
        for label, action in (("New find", self.enter), ("Hand out", self.hand_out), ("Discard", self.discard)):
            self.buttons[label] = Gtk.Button(label=label)
            self.buttons[label].connect("clicked", lambda _, action=action: action())
            bar.pack_start(self.buttons[label], False, False, 0)
        self.status = Gtk.Label(label="", xalign=0)
        bar.pack_start(self.status, True, True, 8)
        box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=8, margin=10)
        box.pack_start(frame, True, True, 0)
        box.pack_start(bar, False, False, 0)
        self.add(box)
        self.show_entries()

    def show_entries(self):
        self.rows.clear()
        for entry in self.register.entries:
            self.rows.append([entry[name] for name in FIELDS])
        self.follow()

    def selected(self):
        rows, place = self.view.get_selection().get_selected()
        return None if place is None else dict(zip(FIELDS, rows[place], strict=True))

    def follow(self):
        entry = self.selected()
        free = entry is not None and entry["status"] == "stored"
        for label in ("Hand out", "Discard"):
            self.buttons[label].set_sensitive(free)
        self.status.set_text(f"Selected: {entry['number']}" if entry else f"{len(self.rows)} entries")

    def say(self, text):
        dialog = Gtk.MessageDialog(transient_for=self, modal=True, buttons=Gtk.ButtonsType.OK, text=text)
        dialog.run()
        dialog.destroy()

    def ask(self, title, accept, fields):
        """Show a form; return what was entered, None when it was cancelled."""
        dialog = Gtk.Dialog(title=title, transient_for=self, modal=True)
        dialog.add_buttons("Cancel", Gtk.ResponseType.CANCEL, accept, Gtk.ResponseType.OK)
        dialog.set_default_response(Gtk.ResponseType.OK)
        grid = Gtk.Grid(row_spacing=8, column_spacing=10, margin=12)
        entries = []
        for row, name in enumerate(fields):
            label = Gtk.Label(label=name, xalign=0)
            entry = Gtk.Entry(activates_default=True, width_chars=40)
            label.set_mnemonic_widget(entry)
            entry.get_accessible().set_name(name)
            grid.attach(label, 0, row, 1, 1)
            grid.attach(entry, 1, row, 1, 1)
            entries.append(entry)
        dialog.get_content_area().add(grid)
        dialog.show_all()
        accepted = dialog.run() == Gtk.ResponseType.OK
        values = [entry.get_text().strip() for entry in entries]
        dialog.destroy()
        return values if accepted else None

    def enter(self):
        values = self.ask("New find", "Save", ("Found on (YYYY-MM-DD)", "Item", "Place"))
        if values is None:
            return
        found_on, item, place = values
        if not is_date(found_on) or not item or not place:
            self.say("Not saved: the date must be written as 2026-05-09, and item and place must not be empty.")
            return
        number = self.register.add(found_on, item, place)
        self.show_entries()
        self.status.set_text(f"Saved as {number}")

    def hand_out(self):
        entry = self.selected()
        values = self.ask(f"Hand out {entry['number']}", "Hand out", ("Receiver",))
        if values is None:
            return
        if not values[0]:
            self.say("Not handed out: the receiver is missing.")
            return
        self.register.change(entry["number"], "hand out", status="handed out", receiver=values[0])
        self.show_entries()

    def discard(self):
        entry = self.selected()
        text = f"Strike {entry['number']} ({entry['item']}) off the register? This cannot be undone."
        dialog = Gtk.MessageDialog(transient_for=self, modal=True, buttons=Gtk.ButtonsType.YES_NO, text=text)
        agreed = dialog.run() == Gtk.ResponseType.YES
        dialog.destroy()
        if agreed:
            self.register.change(entry["number"], "discard", status="discarded")
            self.show_entries()


def is_date(text):
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


os.umask(0o077)
# The screen is the executor's: without this, its settings (XSETTINGS) name modules that GTK loads into this process.
Gtk.Settings.get_default().set_property("gtk-modules", "")
window = Window(Register())
window.show_all()
window.buttons["New find"].grab_focus()
window.view.get_selection().unselect_all()
Gtk.main()
