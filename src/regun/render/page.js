(() => {
  "use strict";
  const tip = document.getElementById("tip");
  const announcement = document.getElementById("announcement");
  let owner = null;
  let timer = 0;

  const place = () => {
    const box = owner.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(box.left + box.width / 2 - size.width / 2, width - size.width - 8));
    const below = box.bottom + 8;
    const top = below + size.height < window.innerHeight ? below : Math.max(8, box.top - size.height - 8);
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  };
  const hide = () => {
    clearTimeout(timer);
    tip.hidden = true;
    owner = null;
  };
  const show = (button) => {
    clearTimeout(timer);
    const meaning = document.getElementById(button.dataset.tip);
    if (!meaning) return;
    owner = button;
    tip.replaceChildren(...[...meaning.childNodes].map((node) => node.cloneNode(true)));
    tip.hidden = false;
    place();
  };
  const leave = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (document.activeElement !== owner) hide();
    }, 150);
  };
  for (const button of document.querySelectorAll("[data-tip]")) {
    button.addEventListener("pointerenter", () => show(button));
    button.addEventListener("pointerleave", leave);
    button.addEventListener("focus", () => show(button));
    button.addEventListener("blur", hide);
  }
  tip.addEventListener("pointerenter", () => clearTimeout(timer));
  tip.addEventListener("pointerleave", leave);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  document.addEventListener("pointerdown", (event) => {
    if (owner && event.target.closest && !event.target.closest("[data-tip], #tip")) hide();
  });
  document.addEventListener("scroll", () => owner && place(), { capture: true, passive: true });

  const valueOf = (row, column, kind) => {
    const cell = row.children[column];
    if (kind === "text") return cell.querySelector(".name").textContent;
    return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  };
  const sort = (button) => {
    const head = button.closest("th");
    const column = [...head.parentNode.children].indexOf(head);
    const kind = head.dataset.kind;
    const up = head.getAttribute("aria-sort") !== "ascending";
    const body = head.closest("table").querySelector("tbody.methods");
    const rows = [...body.rows].map((row) => [row, valueOf(row, column, kind), row.hasAttribute("data-last")]);
    rows.sort(([, a, aLast], [, b, bLast]) => {
      if (aLast !== bLast) return aLast ? 1 : -1;
      if (a === null || b === null) return (a === null) - (b === null);
      const order = kind === "text" ? a.localeCompare(b) : a - b;
      return up ? order : -order;
    });
    body.append(...rows.map(([row]) => row));
    for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    announcement.textContent = `Sorted by ${button.textContent}, ${up ? "smallest" : "largest"} first.`;
  };
  for (const button of document.querySelectorAll("table.sortable thead button")) {
    button.addEventListener("click", () => sort(button));
  }

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const fold of folded) fold.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const fold of folded) fold.open = false;
  });
})();
