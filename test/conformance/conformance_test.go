package conformance

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts"
)

// workers run cases at the same time, each on a database of its own.
const workers = 4

// suite is what all cases share.
type suite struct {
	cases      []*golden
	deviations []*deviation
	topics     *topics
	workers    []*worker

	mu       sync.Mutex
	verdicts map[*golden]verdict
}

// worker runs one case at a time.
type worker struct {
	suite *suite
	db    *database
	file  string // for the configuration of the case
}

func TestConformance(t *testing.T) {
	dir, own := goldenDir()
	s := &suite{cases: loadGolden(t, dir), deviations: loadDeviations(t, "deviations.toml"), verdicts: map[*golden]verdict{}}
	one := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if one {
		s.topics = newTopics(t, nil)
	} else {
		s.topics = newTopics(t, s.cases)
	}
	for range workers {
		s.workers = append(s.workers, &worker{suite: s, db: newDatabase(t), file: filepath.Join(t.TempDir(), "postrider.toml")})
		if one {
			break // of the cases one by one, as they are asked for
		}
	}
	if !one {
		began := time.Now()
		s.runAll()
		t.Logf("%d cases in %s", len(s.cases), time.Since(began).Round(time.Second/10))
	}
	for _, area := range s.areas() {
		t.Run(area, func(t *testing.T) {
			for _, g := range s.cases {
				if g.area == area {
					t.Run(g.ID, func(t *testing.T) { s.tell(t, g) })
				}
			}
		})
	}
	if one {
		return
	}
	t.Log("\n" + s.table())
	s.requireFewDeviations(t)
	if own {
		s.requireUsed(t)
		s.requirePage(t, filepath.Join("..", "..", "docs", "CONFORMANCE.md"))
	}
}

// runAll gives each worker the cases of one shape after the other.
func (s *suite) runAll() {
	shapes := make(chan []*golden)
	var running sync.WaitGroup
	for _, w := range s.workers {
		running.Go(func() {
			for cases := range shapes {
				for _, g := range cases {
					w.check(g)
				}
			}
		})
	}
	for _, cases := range byShape(s.cases) {
		shapes <- cases
	}
	close(shapes)
	running.Wait()
}

// tell reports the verdict on a case, which is run now if it has not been.
func (s *suite) tell(t *testing.T, g *golden) {
	v, known := s.verdicts[g]
	if !known {
		v = s.workers[0].check(g)
	}
	for _, d := range v.unexplained {
		t.Errorf("%s", d.text)
	}
	if v.deviation != nil {
		t.Logf("deviates as listed: %s", v.deviation.Name)
		for _, d := range v.differences {
			t.Logf("%s", d.text)
		}
	}
}

// check runs one case and judges it.
func (w *worker) check(g *golden) verdict {
	ctx, cancel := context.WithTimeout(context.Background(), parts.Patience)
	defer cancel()
	var v verdict
	if got, err := w.run(ctx, g); err != nil {
		w.db.spoilt()
		v.unexplained = []difference{{memberRun, fmt.Sprintf("the case could not be run: %v", err)}}
	} else {
		v = judge(g, g.compare(got), got.failure, w.suite.deviations)
	}
	w.suite.mu.Lock()
	defer w.suite.mu.Unlock()
	w.suite.verdicts[g] = v
	return v
}

// run takes the case from its configuration to the topics. The error says that it could not be run; what postrider fails with is in the
// result.
func (w *worker) run(ctx context.Context, g *golden) (*result, error) {
	if err := w.db.prepare(ctx, g); err != nil {
		return nil, fmt.Errorf("make its tables: %w", err)
	}
	got := &result{from: time.Now()}
	cfg, err := w.configuration(ctx, g)
	if err != nil {
		got.failure = err
		return got, nil
	}
	if g.changesCatalogue() {
		defer w.db.spoilt()
	}
	if err := w.db.execute(ctx, g.SQLBeforeStart, func() error { return nil }); err != nil {
		return nil, fmt.Errorf("write the rows before the start: %w", err)
	}
	if err := w.db.catchUp(ctx); err != nil {
		return nil, err
	}
	p, err := newPipeline(ctx, cfg, w.db)
	if err != nil {
		got.failure = err
		return got, nil
	}
	if cfg.Snapshot.On() {
		if err := p.snapshot(ctx); err != nil {
			got.failure = err
			return got, nil
		}
	}
	if err := p.follow(ctx, g.SQL); err != nil {
		return nil, err
	}
	got.failure = p.failure
	if err := w.suite.topics.publish(ctx, cfg.Sink.Kafka, g.Topics, p.messages, got); err != nil {
		return nil, err
	}
	return got, nil
}
