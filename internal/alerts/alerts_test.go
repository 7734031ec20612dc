package alerts

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
)

// pass lets the time pass, and everything that is due happen. The half second puts us between two
// looks.
func pass(d time.Duration) {
	time.Sleep(d + 500*time.Millisecond)
	synctest.Wait()
}

// inBubble runs a notifier with one receiver.
func inBubble(t *testing.T, cfg Config, f func(t *testing.T, b *bench, r *fake)) {
	synctest.Test(t, func(t *testing.T) {
		r := &fake{}
		b := start(t, cfg, newReceiver("webhook", r))
		f(t, b, r)
	})
}

func TestNotifier_TellsWhatHasHeldForItsForAndWhenItIsOver(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		began := time.Now()
		b.set(condition("PostriderNotReady", health.Critical, time.Minute))
		pass(55 * time.Second)
		require.Empty(t, r.words(), "it has not held for its For")
		pass(10 * time.Second)
		require.Equal(t, []string{"firing critical PostriderNotReady"}, r.words())
		require.WithinDuration(t, began, r.last().Alerts[0].StartsAt, 2*time.Second,
			"it began when it was seen first")
		require.True(t, r.last().Alerts[0].EndsAt.IsZero())

		pass(3 * time.Hour)
		require.Len(t, r.words(), 1, "told once")

		b.set()
		over := time.Now()
		pass(resolveAfter - 5*time.Second)
		require.Len(t, r.words(), 1)
		pass(10 * time.Second)
		require.Equal(t, []string{
			"firing critical PostriderNotReady", "resolved critical PostriderNotReady",
		}, r.words())
		require.WithinDuration(t, over, r.last().Alerts[0].EndsAt, 2*time.Second,
			"it ended when it was seen last")
		pass(4 * time.Hour)
		require.Len(t, r.words(), 2)
		require.Equal(t, 2.0, b.sent("webhook"))
		require.Zero(t, b.failed("webhook"))
		require.Zero(t, b.dropped())
	})
}

func TestNotifier_SaysNothingOfWhatDoesNotHoldForLong(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		for range 20 {
			b.set(condition("PostriderNotReady", health.Critical, time.Minute))
			pass(50 * time.Second)
			b.set()
			pass(35 * time.Second)
		}
		require.Empty(t, r.words())
	})
}

// Replicas are missing, and sink.kafka.delivery_timeout is 40 s: each session is silent, then
// ends, then there is a pause.
func TestNotifier_TellsWhatComesAndGoesWithTheSessions(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		for range 20 {
			b.set() // the sink is silent for three seconds before that can be seen
			pass(5 * time.Second)
			b.set(condition("PostriderStuck", health.Critical, time.Minute))
			pass(35 * time.Second)
			b.set(condition("PostriderNotReady", health.Critical, time.Minute))
			pass(14 * time.Second)
		}
		require.Equal(t, []string{"firing critical PostriderStuck"}, r.words(),
			"and it is not over in between")
	})
}

func TestNotifier_TakesSinceForTheBeginning(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		c := condition("PostriderSlotInactive", health.Warning, 5*time.Minute)
		c.Since = time.Now().Add(-time.Hour)
		b.set(c)
		pass(4 * time.Minute)
		require.Empty(t, r.words(), "For is how long we have seen it: a new process does not tell "+
			"what it is about to mend")
		pass(2 * time.Minute)
		require.Equal(t, c.Since.UTC(), r.last().Alerts[0].StartsAt.UTC())
	})
}

func TestNotifier_TellsWhatGetsGraverButNotWhatGetsBetter(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		b.set(condition("PostriderSlotNearLoss", health.Warning, 5*time.Minute))
		pass(6 * time.Minute)
		b.set(condition("PostriderSlotNearLoss", health.Critical, 0))
		pass(time.Second)
		want := []string{"firing warning PostriderSlotNearLoss", "firing critical PostriderSlotNearLoss"}
		require.Equal(t, want, r.words(), "unreserved is critical at once")
		first, second := r.all()[0], r.all()[1]
		require.Equal(t, first.GroupKey, second.GroupKey)
		require.Equal(t, first.Alerts[0].Fingerprint, second.Alerts[0].Fingerprint)
		require.Equal(t, first.Alerts[0].StartsAt, second.Alerts[0].StartsAt)

		for range 10 {
			b.set(condition("PostriderSlotNearLoss", health.Warning, 5*time.Minute))
			pass(6 * time.Minute)
			b.set(condition("PostriderSlotNearLoss", health.Critical, 0))
			pass(time.Minute)
		}
		require.Equal(t, want, r.words(), "critical was told already")
		b.set()
		pass(time.Minute)
		require.Equal(t, append(want, "resolved critical PostriderSlotNearLoss"), r.words())
	})
}

func TestNotifier_WaitsForTheForOfEachSeverity(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		b.set(condition("PostriderLagHigh", health.Warning, 5*time.Minute))
		pass(3 * time.Minute)
		b.set(condition("PostriderLagHigh", health.Critical, 10*time.Minute))
		pass(3 * time.Minute)
		require.Equal(t, []string{"firing warning PostriderLagHigh"}, r.words(),
			"it has been at least a warning for five minutes")
		pass(8 * time.Minute)
		require.Equal(t, []string{"firing warning PostriderLagHigh", "firing critical PostriderLagHigh"},
			r.words())
	})
}

func TestNotifier_LeavesOutWhatIsBelowTheSeverity(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Severity = "warning"
	inBubble(t, cfg, func(t *testing.T, b *bench, r *fake) {
		b.set(condition("PostriderSlotExtended", health.Info, 0),
			condition("PostriderBacklog", health.Info, 0))
		pass(time.Minute)
		require.Empty(t, r.words())
		b.set(condition("PostriderSlotExtended", health.Info, 0),
			condition("PostriderBacklog", health.Warning, 0))
		pass(time.Minute)
		require.Equal(t, []string{"firing warning PostriderBacklog"}, r.words())
		b.set()
		pass(time.Minute)
		require.Equal(t, []string{
			"firing warning PostriderBacklog", "resolved warning PostriderBacklog",
		}, r.words())
	})
}

func TestNotifier_AdoptsSeverityAndRepetition(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Severity = "critical"
	inBubble(t, cfg, func(t *testing.T, b *bench, r *fake) {
		b.set(condition("PostriderBacklog", health.Warning, 0))
		pass(time.Minute)
		require.Empty(t, r.words())
		cfg.Severity, cfg.RepeatInterval = "warning", time.Hour
		b.Adopt(cfg)
		pass(time.Second)
		require.Equal(t, []string{"firing warning PostriderBacklog"}, r.words())
		pass(time.Hour + time.Minute)
		require.Len(t, r.words(), 2, "repeated at the new pace")

		cfg.Severity = "critical"
		b.Adopt(cfg)
		b.set()
		pass(resolveAfter + 5*time.Second)
		require.Equal(t, "resolved warning PostriderBacklog", r.words()[2],
			"what was told is followed to its end")
	})
}

func TestNotifier_TellsOneNameOnceWhateverItsReason(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		a, c := condition("PostriderOtherSlot", health.Warning, 0),
			condition("PostriderOtherSlot", health.Critical, 0)
		for range 100 {
			a.Reason += "."
			b.set(a, c, a)
			pass(time.Second)
		}
		require.Equal(t, []string{"firing critical PostriderOtherSlot"}, r.words())
	})
}

func TestNotifier_Repeats(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		c := condition("PostriderPaused", health.Warning, 0)
		b.set(c)
		pass(time.Minute)
		c.Reason = "how it is later"
		b.set(c)
		pass(3*time.Hour + 50*time.Minute)
		require.Len(t, r.words(), 1)
		pass(20 * time.Minute)
		require.Equal(t, []string{"firing warning PostriderPaused", "firing warning PostriderPaused"},
			r.words())
		require.Equal(t, "how it is later", r.last().CommonAnnotations["summary"])
		pass(4 * time.Hour)
		require.Len(t, r.words(), 3)
	})
	cfg := DefaultConfig()
	cfg.RepeatInterval = 0
	inBubble(t, cfg, func(t *testing.T, b *bench, r *fake) {
		b.set(condition("PostriderPaused", health.Warning, 0))
		pass(8 * time.Hour)
		require.Len(t, r.words(), 1)
	})
}

func TestNotifier_IsNotFloodedByWhatFlaps(t *testing.T) {
	for _, half := range []time.Duration{time.Second, 20 * time.Second, 2 * time.Minute} {
		inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
			for began := time.Now(); time.Since(began) < 3*time.Hour; {
				b.set(condition("PostriderSlotExtended", health.Info, 0))
				pass(half)
				b.set()
				pass(half)
			}
			n := len(r.words())
			require.LessOrEqual(t, n, 14, "every %s for 3 hours", half)
			pass(time.Hour)
			words := r.words()
			require.LessOrEqual(t, len(words), n+1)
			require.Equal(t, "resolved info PostriderSlotExtended", words[len(words)-1])
		})
	}
}

func TestNotifier_TriesAgainWithPauses(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		r.answers(func(context.Context, message) *failure { return &failure{text: "down"} })
		b.set(condition("PostriderLagHigh", health.Warning, 0))
		pass(5 * time.Minute)
		all := r.all()
		tries := len(all)
		require.GreaterOrEqual(t, tries, 8)
		require.LessOrEqual(t, tries, 11)
		for i := range tries - 1 {
			ceiling := backoffMin << i
			pause := all[i+1].at.Sub(all[i].at)
			require.GreaterOrEqual(t, pause, ceiling/2)
			require.LessOrEqual(t, pause, ceiling)
		}
		pass(4 * time.Hour)
		require.LessOrEqual(t, len(r.words()), 4*8+20, "at most eight in an hour")
		require.Equal(t, float64(len(r.words())), b.failed("webhook"))

		r.answers(nil)
		pass(backoffMax)
		require.Equal(t, "firing warning PostriderLagHigh", r.words()[len(r.words())-1],
			"it is still told, hours later")
		require.Zero(t, b.dropped())
	})
}

func TestNotifier_TellsTheLatestToAReceiverThatWasAway(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		r.answers(func(context.Context, message) *failure {
			return &failure{text: "connection refused"}
		})
		b.set(condition("PostriderSlotNearLoss", health.Warning, 0),
			condition("PostriderBacklog", health.Warning, 0))
		pass(time.Minute)
		b.set(condition("PostriderSlotNearLoss", health.Critical, 0))
		pass(time.Hour)
		r.answers(nil)
		before := len(r.words())
		pass(time.Hour)
		require.Equal(t, []string{"firing critical PostriderSlotNearLoss"}, r.words()[before:],
			"the backlog is over, and nobody has heard of it")
		require.Equal(t, 1.0, b.dropped(), "that is counted")
	})
}

func TestNotifier_TellsOfTheEndWhereAnAttemptMayHaveArrived(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		r.answers(func(context.Context, message) *failure {
			return &failure{text: "502", reached: true}
		})
		b.set(condition("PostriderBacklog", health.Warning, 0))
		pass(time.Second)
		b.set()
		pass(time.Hour)
		r.answers(nil)
		pass(time.Hour)
		require.Equal(t, "resolved warning PostriderBacklog", r.words()[len(r.words())-1])
		require.Zero(t, b.dropped())
	})
}

func TestNotifier_DoesNotTryAgainWhatIsRefused(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		r.answers(func(context.Context, message) *failure {
			return &failure{text: "404", refused: true}
		})
		b.set(condition("PostriderPaused", health.Warning, 0))
		pass(3 * time.Hour)
		require.Equal(t, []string{"firing warning PostriderPaused?"}, r.words())
		require.Equal(t, 1.0, b.dropped())
		pass(2 * time.Hour)
		require.Len(t, r.words(), 2, "with the repetition: the URL may have been corrected")
		b.set(condition("PostriderPaused", health.Critical, 0))
		pass(time.Minute)
		require.Len(t, r.words(), 3, "and with each change")
		b.set()
		pass(10 * time.Hour)
		require.Len(t, r.words(), 3, "nobody has heard of it, so nobody hears of the end")
		require.Equal(t, 3.0, b.dropped())
	})
}

func TestNotifier_LeavesAReceiverAloneThatAsksForIt(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		r.answers(func(context.Context, message) *failure {
			return &failure{text: "429", retryAfter: 20 * time.Minute}
		})
		b.set(condition("PostriderPaused", health.Warning, 0))
		pass(2 * time.Second)
		r.answers(nil)
		b.set(condition("PostriderPaused", health.Warning, 0),
			condition("PostriderSlotLost", health.Critical, 0))
		pass(19 * time.Minute)
		require.Len(t, r.words(), 1)
		pass(2 * time.Minute)
		require.Equal(t, []string{
			"firing warning PostriderPaused?", "firing critical PostriderSlotLost",
			"firing warning PostriderPaused",
		}, r.words(),
			"the gravest first")
	})
}

// hangs until the attempt is given up.
func hangs(ctx context.Context, _ message) *failure {
	<-ctx.Done()
	return &failure{text: "no answer", reached: true}
}

func TestNotifier_AReceiverThatHangsDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, well := &fake{answer: hangs}, &fake{}
		b := start(t, DefaultConfig(), newReceiver("webhook", stuck), newReceiver("command", well))
		b.set(condition("PostriderPaused", health.Warning, 0))
		pass(time.Second)
		require.Len(t, well.words(), 1)
		require.Empty(t, stuck.words(), "it hangs")

		// Nothing but the lock stands between Update and its end, and no time passes while it is called.
		before := time.Now()
		for range 1000 {
			b.Update(time.Now(), []health.Condition{condition("PostriderPaused", health.Warning, 0)})
		}
		require.Equal(t, before, time.Now())
		b.set()
		pass(time.Minute)
		require.Equal(t, []string{"firing warning PostriderPaused", "resolved warning PostriderPaused"},
			well.words())
		b.stop()
		require.Equal(t, 2.0, b.sent("command"))
		require.Zero(t, b.sent("webhook"))
		require.Positive(t, b.failed("webhook"))
	})
}

func TestNotifier_WhatChangesWhileItIsSentIsToldAfterwards(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		r.answers(func(ctx context.Context, _ message) *failure {
			select { // a slow one
			case <-time.After(9 * time.Second):
				return nil
			case <-ctx.Done():
				return &failure{text: "no answer", reached: true}
			}
		})
		b.set(condition("PostriderSlotNearLoss", health.Warning, 0))
		pass(2 * time.Second)
		b.set(condition("PostriderSlotNearLoss", health.Critical, 0))
		pass(time.Minute)
		b.set()
		pass(time.Minute)
		require.Equal(t, []string{
			"firing warning PostriderSlotNearLoss", "firing critical PostriderSlotNearLoss",
			"resolved critical PostriderSlotNearLoss",
		}, r.words())
	})
}

func TestNotifier_TheEndOfTheProcessResolvesNothing(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		b.set(condition("PostriderNotReady", health.Critical, 0))
		pass(time.Minute)
		b.stop()
		for range 100 {
			b.Update(time.Now(), nil)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		require.Equal(t, []string{"firing critical PostriderNotReady"}, r.words())
	})
}

func TestNotifier_TriesOnceMoreWhenTheProcessEnds(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		r.answers(func(context.Context, message) *failure {
			return &failure{text: "connection refused"}
		})
		b.set(condition("PostriderNotReady", health.Critical, 0))
		pass(time.Hour)
		r.answers(nil)
		b.stop()
		require.Equal(t, "firing critical PostriderNotReady", r.words()[len(r.words())-1])
		require.Zero(t, b.dropped())
	})
}

func TestNotifier_DoesNotHoldUpTheEndOfTheProcess(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		r.answers(hangs)
		b.set(condition("PostriderNotReady", health.Critical, 0),
			condition("PostriderPaused", health.Warning, 0))
		pass(2 * time.Second)
		before := time.Now()
		b.stop()
		require.LessOrEqual(t, time.Since(before), lastTries)
		require.Equal(t, 2.0, b.dropped())
	})
}

func TestNotifier_TellsTheLastOfAProcessThatHalts(t *testing.T) {
	inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
		b.set(condition("PostriderBacklog", health.Warning, 0))
		pass(time.Minute)
		b.Last(time.Now(), []health.Condition{
			condition("PostriderNotReady", health.Critical, time.Minute),
		})
		b.stop()
		require.Equal(t, []string{
			"firing warning PostriderBacklog", "firing critical PostriderNotReady",
		}, r.words())
	})
}

func TestNotifier_WithoutReceiversDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, DefaultConfig())
		b.set(condition("PostriderNotReady", health.Critical, 0))
		pass(time.Hour)
		require.Empty(t, b.incidents)
	})
}

// Whatever a receiver answers at once, it is tried again no faster than the back-off, and ever
// more rarely.
func TestTurns_NoAnswerOfAReceiverMakesTheNotifierSpin(t *testing.T) {
	answers := map[string]*failure{
		"an error":                  {text: "no"},
		"an error after it took it": {text: "no", reached: true},
		"refused":                   {text: "no", refused: true},
		"come back at once":         {text: "no", retryAfter: time.Nanosecond},
		"come back in a year":       {text: "no", retryAfter: 365 * 24 * time.Hour},
		"taken":                     nil,
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			inBubble(t, DefaultConfig(), func(t *testing.T, b *bench, r *fake) {
				r.answers(func(context.Context, message) *failure { return answer })
				b.set(condition("PostriderNotReady", health.Critical, 0),
					condition("PostriderSlotLost", health.Critical, 0))
				pass(time.Hour)
				heard := r.all()
				require.NotEmpty(t, heard)
				require.LessOrEqual(t, len(heard), 2*(10+6), "of each: ten while the pause doubles, then "+
					"one every quarter of an hour")
				tried := map[string]time.Time{}
				for _, h := range heard {
					name := h.CommonLabels["alertname"]
					if before, again := tried[name]; again {
						require.GreaterOrEqual(t, h.at.Sub(before), backoffMin/2, name)
					}
					tried[name] = h.at
				}
			})
		})
	}
}
