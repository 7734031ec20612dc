package metrics

import (
	_ "embed"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// latencyBuckets span from half a millisecond, a local broker's answer, to a minute, when a person
// has been paged.
var latencyBuckets = []float64{
	.0005, .001, .002, .003, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
}

//go:embed help.txt
var helpText string

// helps are the help texts by name, without the prefix postrider_. A name is a line, and the lines
// of its text are indented.
var helps = sync.OnceValue(func() map[string]string {
	texts, name := map[string]string{}, ""
	for line := range strings.Lines(helpText) {
		if text, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    "); indented {
			texts[name] = strings.TrimPrefix(texts[name]+" "+text, " ")
		} else {
			name = text
		}
	}
	return texts
})

// register makes and registers the series of every field of *set that has a tag name. It panics on
// a series without a help text and on a field of an unknown type. A tag formerly has a
// *prometheus.CounterVec exported under that name, too.
func register(reg prometheus.Registerer, set any) {
	fields := reflect.ValueOf(set).Elem()
	for i := range fields.NumField() {
		field := fields.Type().Field(i)
		if field.Tag.Get("name") != "" {
			s := newSeries(field)
			fields.Field(i).Set(reflect.ValueOf(s))
			reg.MustRegister(s)
			if former := field.Tag.Get("formerly"); former != "" {
				reg.MustRegister(newFormer(former, field, s.(*prometheus.CounterVec)))
			}
		}
	}
}

func newFormer(name string, field reflect.StructField, now *prometheus.CounterVec) *former {
	labels := strings.Fields(field.Tag.Get("labels"))
	desc := prometheus.NewDesc("postrider_"+name,
		"Deprecated: renamed to postrider_"+field.Tag.Get("name")+".", labels, nil)
	return &former{described{desc}, now, labels}
}

func newSeries(field reflect.StructField) prometheus.Collector {
	name, labels := field.Tag.Get("name"), strings.Fields(field.Tag.Get("labels"))
	help := helps()[name]
	if help == "" {
		panic("metrics: help.txt has no text for " + name)
	}
	opts := prometheus.Opts{Namespace: "postrider", Name: name, Help: help}
	desc := described{prometheus.NewDesc("postrider_"+name, help, labels, nil)}
	switch field.Type {
	case reflect.TypeFor[prometheus.Counter]():
		return prometheus.NewCounter(prometheus.CounterOpts(opts))
	case reflect.TypeFor[*prometheus.CounterVec]():
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts), labels)
	case reflect.TypeFor[prometheus.Gauge]():
		return prometheus.NewGauge(prometheus.GaugeOpts(opts))
	case reflect.TypeFor[*prometheus.GaugeVec]():
		return prometheus.NewGaugeVec(prometheus.GaugeOpts(opts), labels)
	case reflect.TypeFor[prometheus.Histogram]():
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "postrider", Name: name, Help: help, Buckets: latencyBuckets,
		})
	case reflect.TypeFor[*OptionalVec]():
		return &OptionalVec{described: desc}
	case reflect.TypeFor[*Enum]():
		return &Enum{OptionalVec: OptionalVec{described: desc}}
	case reflect.TypeFor[*Optional]():
		o := &Optional{described: desc, kind: prometheus.GaugeValue}
		if strings.HasSuffix(name, "_total") {
			o.kind = prometheus.CounterValue
		}
		o.Clear()
		return o
	}
	panic(fmt.Sprintf("metrics: %s has type %s", name, field.Type))
}
