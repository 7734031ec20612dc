package parts

import (
	"strconv"
	"strings"
)

// Metrics are the values of a page of metrics, by series: the name, and the labels in braces.
type Metrics map[string]float64

// ParseMetrics reads the page, in Prometheus' text format.
func ParseMetrics(page []byte) Metrics {
	m := Metrics{}
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		end := strings.LastIndexByte(line, ' ') // labels may have spaces
		if end < 0 || line[0] == '#' {
			continue
		}
		if value, err := strconv.ParseFloat(line[end+1:], 64); err == nil {
			m[line[:end]] = value
		}
	}
	return m
}

// Sum adds the series of a name that have all of these labels, each as name="value". It reports
// whether there are any.
func (m Metrics) Sum(name string, labels ...string) (sum float64, found bool) {
series:
	for series, value := range m {
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, "{"+label) && !strings.Contains(series, ","+label) {
				continue series
			}
		}
		sum, found = sum+value, true
	}
	return sum, found
}
