"""How the receipt's page looks, on a screen and on A4 paper."""

STYLE = """
@page { size: A4; margin: 12mm 14mm }
* { box-sizing: border-box }
body { font: 9.5pt/1.35 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color: #1c2430; max-width: 182mm;
  margin: 8mm auto; padding: 0 4mm }
h1 { font-size: 17pt; font-weight: 600; margin: 0 0 1mm }
h1 span { font-size: 9.5pt; font-weight: 600; padding: 1mm 2.5mm; border-radius: 1mm; vertical-align: middle;
  letter-spacing: .04em; text-transform: uppercase; color: #fff }
.accepted { background: #1f7a4d } .rejected { background: #b3261e }
h2 { font-size: 10.5pt; font-weight: 600; margin: 3.5mm 0 1mm; border-bottom: .3mm solid #c9d1db; padding-bottom: .6mm }
h2 code { font-weight: 400 }
.lead { margin: 0 0 1mm; font-size: 10.5pt }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 6mm }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
.wide { table-layout: auto }
th, td { text-align: left; vertical-align: top; padding: .35mm 2mm .35mm 0; overflow-wrap: anywhere; font-weight: 400 }
th { color: #5a6675; width: 25mm }
.wide th { width: auto } .rule td:nth-child(2), .rule td:last-child { white-space: nowrap; width: 1% }
.figures th:not(:first-child), .figures td:not(:first-child) { text-align: right; font-variant-numeric: tabular-nums }
.figures tr + tr td { border-top: .2mm solid #e6eaef }
ul { margin: 0; padding-left: 4.5mm } li { margin: 0 0 .5mm }
ul, .small { font-size: 8.5pt; color: #38424f } .small { margin: .8mm 0 0 }
code { font: 8pt/1.3 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace }
@media print { body { margin: 0; padding: 0; max-width: none; font-size: 8.4pt; line-height: 1.27 }
  h1 { font-size: 15pt } h2 { font-size: 9pt; margin-top: 2.2mm } .lead { font-size: 9pt }
  ul, .small { font-size: 7.7pt } code { font-size: 7.2pt } th, td { padding-top: .15mm; padding-bottom: .15mm }
  h1 span, .accepted, .rejected { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  section, table, li { break-inside: avoid } }
"""
