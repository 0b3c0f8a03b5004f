// The medians of a run of scripts/bench, and the targets: node scripts/bench.d/summary.mjs FOLDER
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const folder = process.argv[2];
const machine = readFileSync(join(folder, "machine.txt"), "utf8");
const lines = readFileSync(join(folder, "raw.jsonl"), "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));

const median = (numbers) => {
  const sorted = numbers.filter((n) => Number.isFinite(n)).sort((a, b) => a - b);
  return sorted.length === 0 ? undefined : sorted[Math.floor((sorted.length - 1) / 2)];
};
/** All values of a field, by round, of the lines that fit. */
const rounds = (of, fits, field) => {
  const found = new Map();
  for (const line of lines) if (line.of === of && fits(line)) found.set(line.round, line[field]);
  return found;
};
const figure = (of, fits, field) => median([...rounds(of, fits, field).values()]);
/** The median of the ratios within each round: what disturbs a round disturbs both. */
const ratio = (a, b) => {
  const [ours, theirs] = [rounds(...a), rounds(...b)];
  return median([...ours].filter(([round]) => theirs.has(round)).map(([round, value]) => value / theirs.get(round)));
};

const connections = (n) => (line) => line.connections === n && line.offered === null;
const offered = (n) => (line) => line.offered === n;
const named = (name) => (line) => line.figure === name;
const show = (value, digits = 0) => (value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits }));

let text = `# scripts/bench\n\n${machine.replace(/^/gm, "    ")}\n\nMedians of the rounds.\n`;
const table = (head, rows) => {
  text += `\n| ${head.join(" | ")} |\n|${head.map(() => "---").join("|")}|\n`;
  for (const row of rows) text += `| ${row.join(" | ")} |\n`;
};

table(["as fast as it goes, requests a second (p99 in ms)", "1", "16", "64", "256 connections"], [
  ["Node's HTTP, nothing else", "node null", "url"], ["Express, nothing else", "express null", "url"],
  ["postonce's edge, nothing else", "edge null", "null handler, "],
  ["Express, insert only", "peer persist", "url"], ["postonce, keep and answer", "kept", "keep and answer, "],
  ["Express, the whole pattern", "peer full", "url"], ["postonce served, everything running", "served", "url"],
].map(([name, of, how]) => [name, ...[1, 16, 64, 256].map((n) => {
  const fits = how === "url" ? connections(n) : named(`${how}${n} connections`);
  return `${show(figure(of, fits, "per_s"))} (${show(figure(of, fits, "p99_ms"), 1)})`;
})]));

table(["offered, p50 / p99 of the answer in ms", "100/s", "500/s", "1,000/s", "5,000/s"], [
  ["Express, insert only", "peer persist offered"], ["Express, the whole pattern", "peer full offered"],
  ["postonce served, everything running", "served offered"],
].map(([name, of]) => [name, ...[100, 500, 1000, 5000].map((n) =>
  `${show(figure(of, offered(n), "p50_ms"), 2)} / ${show(figure(of, offered(n), "p99_ms"), 2)}`)]));

table(["applied, events a second, and what it stands on", "median"], [
  ["postonce served, 64 connections", show(figure("served", connections(64), "done_per_s"))],
  ["the same, one hot account", show(figure("served hot", connections(64), "done_per_s"))],
  ["Express, the whole pattern, 64 connections", show(figure("peer full", connections(64), "per_s"))],
  ["the same, one hot account", show(figure("peer full hot", connections(64), "per_s"))],
  ["the same, two processes", show(figure("peer full, two processes", connections(64), "per_s"))],
  ["SQLite alone, the same rows, 1 / 8 / 64 a commit", [1, 8, 64].map((n) => show(figure("kept", named(`append alone, ${n} a commit`), "rows_per_s"))).join(" / ")],
  ["keep and answer, 64 connections, beside SQLite alone with 64 rows a commit", show(ratio(["kept", named("keep and answer, 64 connections"), "per_s"], ["kept", named("append alone, 64 a commit"), "rows_per_s"]), 2)],
  ["fdatasync of 4 KiB", `${show(figure("disk", named("fdatasync of 4 KiB"), "per_s"))} (p99 ${show(figure("disk", named("fdatasync of 4 KiB"), "p99_ms"), 2)} ms)`],
]);

const sizes = [...new Set(lines.map((line) => line.of))].filter((of) => /^[0-9]+$/.test(of));
if (sizes.length > 0) {
  const keep = named("keep and answer, 64 connections"), whole = named("end to end, closed loop");
  table(["events in the file", "keep and answer", "to the ledger", "p99 at 1,000/s", "start in ms"], ["empty", ...sizes, ...sizes.map((n) => `${n} busy`)].map((of) => [
    of.replace(" busy", ", retention and settlement running"), show(figure(of, keep, "per_s")), show(figure(of, whole, "done_per_s")),
    show(figure(of, named("end to end, 1000/s offered"), "p99_ms"), 2), show(figure(of, named("start"), "ms"))]));
}

const most = (list) => list.reduce((a, b) => (Number(a) > Number(b) ? a : b), "0");
const full = most(sizes);
const bytes = figure("whole", named("file"), "bytes_per_payment");
const body = 2500;
const targets = [
  ["keep and answer, 64 connections, beside insert only", ratio(["kept", named("keep and answer, 64 connections"), "per_s"], ["peer persist", connections(64), "per_s"]), ">=", 6],
  ["to the ledger, 64 connections, beside the whole pattern", ratio(["served", connections(64), "done_per_s"], ["peer full", connections(64), "per_s"]), ">=", 12],
  [`keep and answer, 64 connections, beside SQLite alone in the same batches (${show(figure("kept", named("keep and answer, 64 connections"), "a_commit"))} rows a commit)`, figure("kept", named("keep and answer, 64 connections"), "of_alone"), ">=", 0.6],
  ["p99 at 500/s offered, beside the whole pattern", ratio(["served offered", offered(500), "p99_ms"], ["peer full offered", offered(500), "p99_ms"]), "<=", 0.25],
  [`keep with ${show(Number(full))} events, beside an empty file`, ratio([full, named("keep and answer, 64 connections"), "per_s"], ["empty", named("keep and answer, 64 connections"), "per_s"]), ">=", 0.9],
  [`to the ledger with ${show(Number(full))} events, beside an empty file`, ratio([full, named("end to end, closed loop"), "done_per_s"], ["empty", named("end to end, closed loop"), "done_per_s"]), ">=", 0.5],
  ["bytes of the file a payment, beside the body and 700", bytes === undefined ? undefined : bytes / (body + 700), "<=", 1.3],
  ["resident memory at 256 connections, MiB", (figure("served memory", () => true, "peak_kib") ?? NaN) / 1024, "<=", 64],
  [`start with ${show(Number(full))} events, ms`, figure(full, named("start"), "ms"), "<=", 300],
  ["the binary of scripts/package, MB", figure("binary", () => true, "bytes") / 1e6, "<=", 12],
];
table(["target", "wanted", "measured", ""], targets.map(([name, value, sign, wanted]) => {
  const known = Number.isFinite(value);
  const met = known && (sign === ">=" ? value >= wanted : value <= wanted);
  return [name, `${sign === ">=" ? "≥" : "≤"} ${wanted}`, known ? show(value, 2) : "not measured", known ? (met ? "met" : "**missed**") : ""];
}));

writeFileSync(join(folder, "summary.md"), text);
console.log(text);
console.log(`kept in ${folder}`);
