package diagnosis

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// condition is a row of the matrix.
type condition struct {
	name string
	// make produces it at a site that is as newSite leaves it.
	make func(t *testing.T, s *site)
	// cause is a pattern of the sentence that names it, in every command; on one line, without quotes.
	cause string
	// not are sentences that say something else, which only follows from it or is wrong.
	not []string
	// alike are commands that say the same about what to type next.
	alike []string
	// unmet are reasons for which commands do not depend on it. All others name the cause.
	unmet reasons
	// prose is why what the hint says cannot be executed: it is for people. Empty: it is executed, as
	// check and as run print it, unless one of them stands in unmet.
	prose string
	// cure does what the prose says. It may be nil where that is to undo what make has done.
	cure func(t *testing.T, s *site)
}

// reasons are commands, by why they do not depend on a condition.
type reasons map[string][]string

func (r reasons) has(command string) bool {
	for _, of := range r {
		if slices.Contains(of, command) {
			return true
		}
	}
	return false
}

func (c condition) meets(command string) bool { return !c.unmet.has(command) }

// walk asks every command, and then does what they have said, each hint once.
func (c condition) walk(t *testing.T, newSite func(t *testing.T) *site) {
	cause := regexp.MustCompile(c.cause)
	s := newSite(t)
	c.make(t, s)
	next := map[string]string{}
	for _, command := range commands {
		if !c.meets(command) {
			continue
		}
		t.Run(command, func(t *testing.T) {
			out := s.ask(t, command, cause)
			c.named(t, out)
			next[command] = out.next
		})
	}
	for _, command := range c.alike {
		require.Equal(t, next[c.alike[0]], next[command], "%s and %s", c.alike[0], command)
	}
	if c.prose != "" {
		if c.cure != nil {
			c.cure(t, s)
			c.over(t, s)
		}
		return
	}
	executed := map[string]bool{} // hints that were typed; sites differ in names, so they are those of the first
	for _, command := range append([]string{check, run}, commands...) {
		hint, asked := next[command]
		if !asked || executed[hint] {
			continue
		}
		if len(executed) > 0 { // by what another one has said
			s = newSite(t)
			c.make(t, s)
		}
		executed[hint] = true
		t.Run("hint of "+command, func(t *testing.T) {
			out := s.ask(t, command, cause)
			t.Logf("next:\n%s", out.next)
			require.NotZero(t, s.typeHint(t, out.next), "nothing in the hint can be typed: %s", out.next)
			c.over(t, s)
		})
	}
	require.NotEmpty(t, executed, "no hint was executed")
}

// named requires the cause, and nothing that leads away from it.
func (c condition) named(t *testing.T, out said) {
	t.Helper()
	require.Regexp(t, c.cause, out.text)
	for _, wrong := range c.not {
		require.NotContains(t, out.text, wrong)
	}
	require.NotEmpty(t, out.next, "what to type next, in\n%s", out.text)
}

// over requires that the cause is gone: check does not name it, and a relay streams.
func (c condition) over(t *testing.T, s *site) {
	t.Helper()
	if c.meets(check) {
		require.NotRegexp(t, c.cause, s.ask(t, check, regexp.MustCompile(c.cause)).text)
	}
	if c.meets(run) {
		s.streamsNow(t)
	}
}

// Reasons that several conditions have.
const (
	ownSlot    = "streams from a temporary slot of its own, and leaves that of the relay alone"
	noDatabase = "reads the topic of dead letters, and asks the database nothing"
	noBroker   = "asks the brokers nothing"
	noServer   = "reads the table and the topics, whoever streams"
	makesIt    = "makes it, which is the remedy"
	leavesSlot = "leaves a slot that exists alone"
	showsSlot  = "shows the slot as it is"
)
