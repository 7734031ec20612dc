package watch

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/terminal"
)

// writeTable writes a table without borders, so that the mouse selects text alone.
func writeTable(b *strings.Builder, width int, rows [][]string, headers ...string) {
	if len(rows) == 0 {
		fmt.Fprintln(b, faint.Render("none"))
		return
	}
	for i, row := range rows {
		shown := make([]string, len(row))
		for j, text := range row {
			shown[j] = terminal.Printable(text)
		}
		rows[i] = shown
	}
	cell := lipgloss.NewStyle().PaddingRight(2)
	t := table.New().Headers(headers...).Rows(rows...).Width(width).Wrap(false).
		Border(lipgloss.HiddenBorder()).BorderTop(false).BorderBottom(false).BorderLeft(false).
		BorderRight(false).BorderColumn(false).BorderHeader(false).
		StyleFunc(func(row, column int) lipgloss.Style {
			if row == table.HeaderRow {
				return cell.Faint(true)
			}
			if style, known := severityStyles[rows[row][column]]; known && column == 0 {
				return style.PaddingRight(2)
			}
			return cell
		})
	fmt.Fprintln(b, t.Render())
	fmt.Fprintln(b)
}

func rowsOf[T, R any](values []T, row func(T) R) []R {
	rows := make([]R, len(values))
	for i := range values {
		rows[i] = row(values[i])
	}
	return rows
}

// sparkline draws the last values that fit, and returns the highest of them. Nil is a blank.
func sparkline(values []*float64, width int) (bars string, high float64) {
	values = values[max(0, len(values)-width):]
	for _, v := range values {
		if v != nil {
			high = max(high, *v)
		}
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	drawn := []rune{}
	for _, v := range values {
		level := ' '
		if v != nil {
			level = levels[int(max(0, *v)/cmp.Or(high, 1)*float64(len(levels)-1)+.5)]
		}
		drawn = append(drawn, level)
	}
	return string(drawn), high
}

func (s screen) ago(t time.Time) string { return health.Duration(s.now().Sub(t)) }

// severity is the word of a condition or finding, in its colour.
func severity[S ~string](s S) string { return severityStyles[string(s)].Render(string(s)) }

// lsn is an LSN for people.
func lsn(l status.LSN) string {
	if l == 0 {
		return "-"
	}
	return pglogrepl.LSN(l).String()
}

func distance(n *int64, what string) string {
	if n == nil {
		return ""
	}
	return health.Bytes(*n) + " " + what
}

func rate(n *float64, what string) string {
	if n == nil {
		return ""
	}
	return health.Bytes(int64(*n)) + "/s " + what
}

func asFloat(n *int64) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}
