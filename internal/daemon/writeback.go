package daemon

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/prune"
	"github.com/postrider/postrider/internal/writeback"
	"github.com/postrider/postrider/relay"
)

// startWriteBack writes back while the relay streams, if [write_back] is on, until stop ends or
// end is called.
func (d *Daemon) startWriteBack(stop context.Context) (end func()) {
	if d.writer == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(stop)
	ended := make(chan struct{})
	go func() { // ends with cancel, waited for by end
		defer close(ended)
		d.writer.Run(ctx)
		d.letters.close()
	}()
	return func() { cancel(); <-ended }
}

// writeBackParts are those of the Writer.
func (d *Daemon) writeBackParts() writeback.Parts {
	p := d.pipeline
	d.letters = &openLetters{pipeline: p}
	tables := p.Config.WriteBackTables()
	return writeback.Parts{
		Postgres: p.Config.Postgres, Config: p.Config.WriteBack, Slot: p.Config.Slot.Name,
		Publication: p.Config.Replication.Publication, Tables: tables,
		Others: slices.DeleteFunc(slices.Clone(p.Config.Replication.Tables), func(name string) bool {
			return slices.ContainsFunc(tables,
				func(src prune.Source) bool { return src.Table == name })
		}),
		Letters: d.letters.entries,
		Progress: func() (streaming bool, published uint64) {
			st := d.Relay.State()
			return st.Phase == relay.Streaming, st.Published
		},
		Metrics: p.metrics, Log: p.Component("write_back"),
	}
}
