// Helpers that create elements, and tables that keep their rows.

export const $ = (id) => document.getElementById(id);

const fill = (node, props, children) => {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
};

export const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);

export const svg = (tag, props = {}, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);

// say sets a text only if it differs, so that a selection survives and screen readers do not repeat it.
export const say = (node, text) => {
  if (node.textContent !== String(text)) node.textContent = text;
};

// rows makes a table's body show items, one row per key. It reuses the row of a key, so that focus is not lost. While
// the pointer or the focus is in the table, rows keep their places.
export const rows = (table, items, key, make, update) => {
  const body = table.tBodies[0];
  const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const held = body.matches(':hover') || body.contains(document.activeElement);
  let after = null;
  for (const item of items) {
    const name = key(item);
    let row = old.get(name);
    const fresh = !row;
    if (fresh) {
      row = make(item);
      row.dataset.key = name;
    }
    old.delete(name);
    update(row, item);
    if (fresh && held) body.append(row);
    else if (!held || fresh) {
      const place = after ? after.nextSibling : body.firstChild;
      if (place !== row) body.insertBefore(row, place);
    }
    after = row;
  }
  for (const row of old.values()) row.remove();
};

export const cells = (...classes) => el('tr', {}, ...classes.map((c, i) => (i === 0 ? el('th', { scope: 'row', class: c }) : el('td', { class: c }))));
