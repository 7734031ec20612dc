package alerts

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
)

// listener is a receiver that keeps the latest notification of each name, whatever it answered.
type listener struct {
	random *rand.Rand
	knows  map[string]message // what reached it
	wrong  []string
}

// hear takes the word, or loses it, or takes it and says that it did not.
func (l *listener) hear(ctx context.Context, m message) *failure {
	name := m.CommonLabels["alertname"]
	note := func() {
		if _, known := l.knows[name]; m.Status == statusResolved && !known {
			l.wrong = append(l.wrong, name+" is resolved, of which it has not heard")
		}
		l.knows[name] = m
	}
	switch l.random.IntN(6) {
	case 0:
		return &failure{text: "refused to connect"}
	case 1:
		return &failure{text: "429", retryAfter: time.Duration(l.random.IntN(60)) * time.Second}
	case 2:
		note()
		<-ctx.Done()
		return &failure{text: "no answer", reached: true}
	case 3:
		time.Sleep(time.Duration(l.random.IntN(8)) * time.Second)
	}
	note()
	return nil
}

var modelSeed = flag.Uint64("model-seed", 0, "a seed that failed: the number in the name of the "+
	"subtest")

// Whatever comes and goes, and whatever a receiver does to attempts: once things stand still it
// knows how they are.
func TestNotifier_EveryReceiverComesToKnowHowThingsAre(t *testing.T) {
	names := []string{"PostriderBacklog", "PostriderNotReady", "PostriderSlotNearLoss"}
	for range 40 {
		seed := rand.Uint64()
		if *modelSeed != 0 {
			seed = *modelSeed
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				l := &listener{random: rand.New(rand.NewPCG(seed, 1)), knows: map[string]message{}}
				b := start(t, DefaultConfig(), newReceiver("webhook", &fake{answer: l.hear}))
				var holds []health.Condition
				for range 30 {
					holds = nil
					for _, name := range names {
						if r := random.IntN(4); r > 0 {
							wait := time.Duration(random.IntN(3)) * 20 * time.Second
							holds = append(holds, condition(name, severities[r], wait))
						}
					}
					b.set(holds...)
					pass(time.Duration(random.IntN(90)) * time.Second)
				}
				// In the end all attempts reach it.
				b.receivers[0].sender.(*fake).answers(func(_ context.Context, m message) *failure {
					l.knows[m.CommonLabels["alertname"]] = m
					return nil
				})
				pass(time.Hour)
				require.Empty(t, l.wrong)
				for _, c := range holds {
					require.Equal(t, statusFiring, l.knows[c.Name].Status, c.Name)
					told := rankOf(health.Severity(l.knows[c.Name].CommonLabels["severity"]))
					require.GreaterOrEqual(t, told, rankOf(c.Severity), c.Name)
					delete(l.knows, c.Name)
				}
				for name, m := range l.knows {
					require.Equal(t, statusResolved, m.Status, name)
				}
			})
		})
	}
}
