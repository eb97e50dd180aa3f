// One script for all pages: each fills the places that it has.
const get = async (name) => (await fetch("/data/" + name)).json();
const put = (id, html) => { const at = document.getElementById(id); if (at) at.innerHTML = html; };
const kr = (n) => n + " kr.";
document.querySelector("header").innerHTML =
  '<b>Skjærgård Ferries</b> &nbsp; <a href="/">Timetable</a><a href="/ships.html">Ships</a>' +
  '<a href="/notices.html">Traffic notices</a><a href="/tariff.html">Prices</a><a href="/book.html">Book</a>';

const post = async (name, wish) => {
  const answer = await fetch("/data/" + name, { method: "POST", body: JSON.stringify(wish) });
  return answer.json();
};

async function timetable() {
  const sailings = await get("sailings");
  put("timetable", "<tr><th>Route<th>Departure<th>Arrival<th>Ship<th>Days</tr>" + sailings.map((s) =>
    `<tr><td>${s.route}<td>${s.departure}<td>${s.arrival}<td>${s.ship}<td>${s.days}</tr>`).join(""));
}
async function ships() {
  put("ships", Object.entries(await get("ships")).map(([name, s]) =>
    `<h2>${name}</h2><p>${s.text}</p><details><summary>Technical data of ${name}</summary>` +
    `Height of the car deck: ${s.height.toFixed(2)} m</details>`).join(""));
}
async function notices() {
  put("notices", (await get("notices")).map((n) =>
    `<div class="notice"><h2>${n.title}</h2><p>${n.from} to ${n.until}</p><p>${n.text}</p></div>`).join(""));
}
async function tariff() {
  const t = await get("tariff");
  put("tariff", "<tr><th>Class<th>Vehicle<th>Price</tr>" + t.vehicles.map((v) =>
    `<tr><td>${v.class}<td>${v.text}<td>${kr(v.price)}</tr>`).join("") + `<tr><td><td>Adult<td>${kr(t.adult)}</tr>`);
  put("note", t.note);
}
async function booking() {
  const form = document.forms.booking;
  const sailings = await get("sailings"), classes = (await get("tariff")).vehicles;
  form.sailing.innerHTML = '<option value="">choose</option>' + sailings.map((s) =>
    `<option value="${s.id}">${s.departure} ${s.route} (${s.ship})</option>`).join("");
  form.vehicle.innerHTML = '<option value="">choose</option>' + classes.map((v) =>
    `<option value="${v.class}">${v.class}: ${v.text}</option>`).join("");
  const wish = () => Object.fromEntries(new FormData(form).entries());
  form.addEventListener("input", async () => {
    const answer = await post("price", wish());
    put("price", answer.error ? "" : "Total: " + kr(answer.total));
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const answer = await post("book", wish());
    if (answer.error) put("error", answer.error);
    else location.href = "/confirmation.html?reference=" + answer.reference;
  });
}
async function confirmation() {
  const b = await get("booking" + location.search);
  if (b.error) { put("confirmation", `<p class="error">${b.error}</p>`); return; }
  const s = (await get("sailings")).find((one) => one.id === b.sailing);
  put("confirmation", `<p>Thank you, ${b.name.replace(/[<&]/g, "")}. Your reference:</p><p class="big" id="reference">${b.reference}</p>` +
    `<p>${b.date}, ${s.departure} to ${s.arrival}, ${s.route}, ${s.ship}</p>` +
    `<p>Vehicle ${b.plate.replace(/[<&]/g, "")}, class ${b.vehicle}; further adults: ${b.adults}</p><p>Charged: ${kr(b.total)}</p>`);
}
({ timetable, ships, notices, tariff, booking, confirmation })[document.body.dataset.page]();
