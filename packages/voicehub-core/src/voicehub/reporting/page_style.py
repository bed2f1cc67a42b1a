"""The style sheet of the HTML report; follows the reader's light or dark setting."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2230; --soft: #5c6678; --rule: #e2e6ec;
  --good: #147a4b; --good-bg: #e3f4ea; --bad: #b3261e; --bad-bg: #fbe7e5;
  --warn: #8a5a00; --warn-bg: #fdf1d8; --insert: #6a3fb5; --insert-bg: #efe8fb;
  --s0: #2f6fed; --s1: #e0742a; --s2: #1d9a78; --s3: #a44fc9; --s4: #c2334d; --s5: #7c8a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #11151c; --card: #1a202b; --ink: #e7ebf2; --soft: #98a3b5; --rule: #2c3443;
    --good: #6fd6a4; --good-bg: #17382a; --bad: #ff9d94; --bad-bg: #44201f;
    --warn: #f2c66b; --warn-bg: #3d3013; --insert: #c9aef7; --insert-bg: #33264d;
    --s0: #7aa7ff; --s1: #ffad6b; --s2: #5fd4b1; --s3: #d79bf0; --s4: #ff8b9f; --s5: #c6d35c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 32px 20px 64px; }
header h1 { margin: 0; font-size: 28px; line-height: 1.2; letter-spacing: -0.01em; }
header p { margin: 4px 0 0; color: var(--soft); }
h2 { margin: 40px 0 12px; font-size: 19px; }
.tiles { display: grid; gap: 12px; margin-top: 24px;
  grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.tile, .card, .chart { background: var(--card); border: 1px solid var(--rule);
  border-radius: 10px; }
.tile { padding: 14px 16px; }
.tile span { display: block; color: var(--soft); font-size: 13px; }
.tile b { font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.card { padding: 4px 16px; overflow-x: auto; }
.charts { display: grid; gap: 14px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
.chart { margin: 0; padding: 14px 14px 6px; }
.chart svg { display: block; width: 100%; height: auto; }
.chart text { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
figcaption { font-size: 14px; }
.legend { display: flex; flex-wrap: wrap; gap: 0 16px; min-height: 21px; color: var(--soft);
  font-size: 12.5px; }
.key { white-space: nowrap; }
.key i { display: inline-block; width: 14px; height: 3px; margin-right: 6px; border-radius: 2px;
  vertical-align: middle; background: currentColor; }
.key.s0 i { background: var(--s0); } .key.s1 i { background: var(--s1); }
.key.s2 i { background: var(--s2); } .key.s3 i { background: var(--s3); }
.key.s4 i { background: var(--s4); } .key.s5 i { background: var(--s5); }
.grid { stroke: var(--rule); stroke-width: 1; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.line.s0 { stroke: var(--s0); } .line.s1 { stroke: var(--s1); } .line.s2 { stroke: var(--s2); }
.line.s3 { stroke: var(--s3); } .line.s4 { stroke: var(--s4); } .line.s5 { stroke: var(--s5); }
.dot.s0 { fill: var(--s0); } .dot.s1 { fill: var(--s1); } .dot.s2 { fill: var(--s2); }
.dot.s3 { fill: var(--s3); } .dot.s4 { fill: var(--s4); } .dot.s5 { fill: var(--s5); }
table { width: 100%; border-collapse: collapse; }
th, td { padding: 9px 18px 9px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-size: 12.5px; font-weight: 500; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.warning { margin: 12px 0 0; padding: 10px 14px; border-radius: 8px;
  background: var(--warn-bg); color: var(--warn); }
.sample { padding: 12px 0; border-bottom: 1px solid var(--rule); }
.sample:last-child { border-bottom: 0; }
.sample .top { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 14px;
  color: var(--soft); font-size: 13px; }
.sample audio { height: 32px; max-width: 100%; }
.badge { padding: 1px 9px; border-radius: 999px; font-size: 12.5px; }
.badge.good { background: var(--good-bg); color: var(--good); }
.badge.bad { background: var(--bad-bg); color: var(--bad); }
.words { display: grid; grid-template-columns: 84px 1fr; gap: 2px 12px; margin: 8px 0 0; }
.words dt { color: var(--soft); font-size: 13px; }
.words dd { margin: 0; }
mark { padding: 0 3px; border-radius: 4px; }
mark.del { background: var(--bad-bg); color: var(--bad); text-decoration: line-through; }
mark.sub { background: var(--bad-bg); color: var(--bad); }
mark.ins { background: var(--insert-bg); color: var(--insert); }
pre { margin: 12px 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
details > summary { padding: 10px 0; cursor: pointer; color: var(--soft); }
.soft { color: var(--soft); }
a { color: var(--s0); }
"""
