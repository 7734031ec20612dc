// Tables that scroll inside their box, so that the page itself never has to.

// table = {name, columns: [{title, className, cell(row), by}], rows, key(row), sort}; by makes a column sortable.
function table({ name, columns, rows, key, sort, tall }) {
  return el('div', { class: tall ? 'box tall' : 'box', tabindex: '0', role: 'region', 'aria-label': name },
    el('table', {},
      el('thead', {}, el('tr', {}, columns.map((c) => el('th', {
        scope: 'col', class: c.className,
        'aria-sort': sort && sort.by === c.title ? (sort.down ? 'descending' : 'ascending') : undefined,
      }, c.by ? el('button', { type: 'button', class: 'sort', 'data-action': 'sort', 'data-table': name, 'data-by': c.title }, c.title) : c.title)))),
      el('tbody', {}, rows.map((row) => el('tr', { 'data-key': key(row) },
        columns.map((c) => el('td', { class: c.className }, c.cell(row))))))));
}

// sorted orders rows by a column; equal ones stay in their order.
function sorted(rows, columns, sort) {
  const by = columns.find((c) => c.title === sort.by)?.by;
  if (!by) return rows;
  const sign = sort.down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [by(a) ?? -Infinity, by(b) ?? -Infinity];
    return (x < y ? -1 : x > y ? 1 : 0) * sign;
  });
}
