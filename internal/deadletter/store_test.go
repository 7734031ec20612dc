package deadletter

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/sink"
)

// cluster is topics in memory. Its letters are in several partitions.
type cluster struct {
	mu      sync.Mutex
	letters [3][]*sink.Message
	home    map[string][]*sink.Message // by topic
	news    chan struct{}              // closed, and made anew, with every record
	refuse  func(m *sink.Message) error
}

const letterTopic = "letters"

func newCluster() *cluster {
	return &cluster{home: map[string][]*sink.Message{}, news: make(chan struct{})}
}

func (c *cluster) append(ms []*sink.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range ms {
		if c.refuse != nil {
			if err := c.refuse(m); err != nil {
				return &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: err}
			}
		}
	}
	for _, m := range ms {
		if m.Topic != letterTopic {
			c.home[m.Topic] = append(c.home[m.Topic], m)
			continue
		}
		stored := *m
		if stored.Partition == sink.ByKey {
			h := fnv.New32a()
			h.Write(m.Key)
			stored.Partition = int32(h.Sum32() % uint32(len(c.letters)))
		}
		c.letters[stored.Partition] = append(c.letters[stored.Partition], &stored)
	}
	close(c.news)
	c.news = make(chan struct{})
	return nil
}

// view is the Store of one reader.
type view struct {
	*cluster
	next [3]int
}

func (v *view) Read(ctx context.Context, wait time.Duration, each func(*sink.Message, int64)) error {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		v.mu.Lock()
		type found struct {
			m  *sink.Message
			at int64
		}
		var all []found
		for p := range v.letters {
			for ; v.next[p] < len(v.letters[p]); v.next[p]++ {
				all = append(all, found{v.letters[p][v.next[p]], int64(v.next[p])})
			}
		}
		news := v.news
		v.mu.Unlock()
		for _, f := range all {
			each(f.m, f.at)
		}
		if len(all) > 0 || wait == 0 {
			return nil
		}
		select {
		case <-news:
		case <-timeout.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (v *view) Get(_ context.Context, partition int32, offset int64) (*sink.Message, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.letters[partition][offset], nil
}

func (v *view) Append(_ context.Context, ms []*sink.Message) error { return v.append(slices.Clone(ms)) }
func (v *view) Limit() int                                         { return 100_000 }
func (v *view) Close()                                             {}
