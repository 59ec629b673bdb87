"""The style sheet: light and dark, narrow and wide, screen and paper.

Colours of charts are those of Okabe and Ito, which people with any colour vision tell apart.
"""

from __future__ import annotations

from typing import Final

LIGHT: Final = (
    "--ink:#1b1e22;--soft:#545b63;--paper:#fff;--panel:#f4f6f8;--rule:#c9cfd6;--one:#0072b2;"
    "--two:#c24e00;--three:#00785a;--bad:#a8231b;--warn:#7d4a00;--note:#005a87;"
)
_DARK = (
    "--ink:#e6e9ed;--soft:#a9b1ba;--paper:#13171c;--panel:#1d232a;--rule:#404954;--one:#56b4e9;"
    "--two:#f0912b;--three:#2fc49a;--bad:#ff8f85;--warn:#f5b544;--note:#7fc8f5;"
)
CHART: Final = (
    ".chart{display:block;width:100%;min-width:40rem;font:12px system-ui,sans-serif}"
    ".chart text{fill:var(--ink)}.chart .soft{fill:var(--soft)}"
    ".chart .strong{font-weight:700}.chart .axis{stroke:var(--rule);stroke-width:1}"
    ".chart .one{fill:var(--one)}.chart .two{fill:var(--two)}.chart .three{fill:var(--three)}"
    ".chart .fair{fill:none;stroke:var(--ink);stroke-width:1.5;stroke-dasharray:5 3}"
    ".chart .mark{stroke:var(--bad);stroke-width:1.5}.chart .span{fill:var(--bad)}"
    ".chart .span.warning{fill:var(--warn)}.chart .span.note{fill:var(--note)}"
    ".chart .mark.warning{stroke:var(--warn)}.chart .mark.note{stroke:var(--note)}"
    ".chart .wire{fill:none;stroke:var(--one);stroke-width:1.8}"
    ".chart .wire.two{stroke:var(--two);stroke-dasharray:7 3}"
    ".chart .wire.three{stroke:var(--three);stroke-dasharray:2 3}"
    ".chart .wire.four{stroke:var(--ink);stroke-dasharray:9 3 2 3}"
    ".chart .cell{stroke:var(--rule);stroke-width:.5}"
    ".chart .box{fill:var(--one);stroke:var(--ink);stroke-width:1}"
    ".chart .whisker{stroke:var(--ink);stroke-width:1.2}"
)
STYLE: Final = (
    f":root{{{LIGHT}color-scheme:light dark}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}"
    "header,main,footer{max-width:72em;margin:0 auto;padding:0 1.2em}"
    "h1{font-size:1.5em;margin:.8em 0 .2em;overflow-wrap:anywhere}"
    "h2{font-size:1.2em;margin:2em 0 .4em;border-bottom:1px solid var(--rule)}"
    "h3{font-size:1em;margin:1.2em 0 .3em}"
    "p,li,dd,figcaption,summary{overflow-wrap:anywhere}"
    "p{margin:.4em 0}.soft,footer,figcaption{color:var(--soft)}"
    "footer p{font-size:.85em}.lead{font-size:1.1em}"
    ".bad{color:var(--bad)}.warn{color:var(--warn)}.good{color:var(--three)}"
    ".cold{color:var(--one)}"
    "ol.findings{padding:0;list-style:none}"
    "ol.findings>li{border-left:.35em solid var(--note);background:var(--panel);"
    "padding:.5em .9em;margin:.7em 0}"
    "ol.findings>.critical{border-color:var(--bad)}ol.findings>.warning{border-color:var(--warn)}"
    ".critical .mark{color:var(--bad)}.warning .mark{color:var(--warn)}"
    ".note .mark{color:var(--note)}"
    ".mark{font-weight:700}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:0 1em;margin:.4em 0}"
    "dt{color:var(--soft)}dd{margin:0}"
    ".wide{overflow-x:auto;max-width:100%}"
    ".wide:focus-visible{outline:2px solid var(--note);outline-offset:2px}"
    "table{border-collapse:collapse;font-size:.85em;font-variant-numeric:tabular-nums;"
    "margin:.5em 0}"
    "th{color:var(--soft);font-weight:600;text-align:left;vertical-align:bottom;"
    "border-bottom:1px solid var(--rule)}"
    "th,td{padding:.2em .7em .2em 0;white-space:nowrap}td{vertical-align:top}"
    "td.fold{white-space:normal;min-width:14em;overflow-wrap:anywhere}"
    "th.n,td.n{text-align:right}tbody tr:nth-child(even){background:var(--panel)}"
    ".bars{font-family:ui-monospace,monospace;white-space:pre}"
    "figure{margin:1.4em 0}details{margin:.3em 0}summary{cursor:pointer}"
    "a{color:var(--note)}footer{margin:3em auto 2em}"
    f"{CHART}"
    "@media print{@page{margin:14mm}body{font-size:10pt}.chart{min-width:0}"
    ".wide{overflow:visible}h2,h3{break-after:avoid}"
    "figure,tr,ol.findings>li{break-inside:avoid}td:not(.n),th{white-space:normal}"
    "details{display:none}table{font-size:8pt}"
    "*{print-color-adjust:exact}}"
)
