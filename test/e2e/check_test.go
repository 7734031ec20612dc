package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// checked is the result of `postrider check --json`.
type checked struct {
	OK       bool            `json:"ok"`
	Findings []check.Finding `json:"findings"`
	code     int
}

func (c checked) of(code string) []check.Finding {
	return slices.DeleteFunc(slices.Clone(c.Findings), func(f check.Finding) bool { return f.Code != code })
}

// worst is the severity that counts among the findings of a code; empty: there is none.
func (c checked) worst(code string) check.Severity {
	worst := check.Severity("")
	for _, s := range []check.Severity{check.SeverityOK, check.SeverityInfo, check.SeverityWarning, check.SeverityError} {
		if slices.ContainsFunc(c.of(code), func(f check.Finding) bool { return f.Severity == s }) {
			worst = s
		}
	}
	return worst
}

func (s *shop) check(t testing.TB, env map[string]string, args ...string) checked {
	t.Helper()
	all := s.environment()
	maps.Copy(all, env)
	p := start(t, all, append([]string{"check", "--config", s.file, "--json"}, args...)...)
	code := p.Wait(t)
	c := checked{code: code}
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &c), "%s%s", p.Stdout.String(), p.Log.String())
	require.Equal(t, code == 0, c.OK)
	for _, f := range c.Findings {
		if f.Severity == check.SeverityOK {
			require.Empty(t, f.Docs, f.Code)
			continue
		}
		require.NotEmpty(t, f.Required, "%+v", f)
		require.NotEmpty(t, f.Fix, "%+v", f)
		require.Regexp(t, `^docs/(CHECK|RUNBOOKS)\.md#`, f.Docs)
	}
	return c
}

const checkedSQL = `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL,
	event_type text NOT NULL, payload jsonb, created_at timestamptz NOT NULL DEFAULT now());
	CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`

// ownServer is a shop on a server of its own.
func ownServer(t *testing.T, cfg embedded.PostgresConfig) *shop {
	t.Helper()
	pg := parts.ExclusivePostgres(t, cfg)
	s := &shop{Database: parts.NewDatabase(t, pg.DSN()), cluster: newCluster(t), slot: parts.Unique("e2e")}
	s.Exec(t, checkedSQL)
	s.sql = s.Connect(t)
	s.file = filepath.Join(t.TempDir(), "postrider.toml")
	s.configure(t, "")
	return s
}

// On a server and a broker that are set up as the pages say, there is nothing to complain of, for a login that may do no more than it must.
func TestCheck_HasNothingToSayAboutAGoodSetup(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			s := ownServer(t, embedded.PostgresConfig{
				Version: version, Params: map[string]string{"max_slot_wal_keep_size": "20GB"},
				HBA: "host replication all all reject\nhost all all 127.0.0.1/32 trust\nlocal all all trust\n",
			})
			s.Exec(t, sql.Role())
			u, err := url.Parse(s.DSN())
			require.NoError(t, err)
			u.User = url.User("postrider")
			topic := parts.Unique("topic")
			s.CreateTopic(t, topic, 3, nil)
			c := s.check(t, map[string]string{"POSTRIDER_POSTGRES_URL": u.String()}, "--topic", topic)
			require.Zero(t, c.code)
			for _, f := range c.Findings {
				require.NotEqual(t, check.SeverityWarning, f.Severity, "%+v", f)
			}
			for _, code := range []string{"physical_replication", "replication_connection", "role", "wal_level", "topic", "topic_permission", "producer_id", "max_slot_wal_keep_size"} {
				if code == "topic_permission" && !s.Real {
					continue
				}
				require.NotContains(t, []check.Severity{check.SeverityError, check.SeverityWarning, check.SeverityInfo}, c.worst(code), "%s: %+v", code, c.of(code))
			}
		})
	}
}

// healTopic types what the fix of a topic's finding says, as kafka-configs.sh would.
func (s *shop) healTopic(t *testing.T, f check.Finding) {
	t.Helper()
	m := regexp.MustCompile(`^kafka-configs\.sh --bootstrap-server \S+ --alter --topic (\S+) --add-config ([a-z.]+)=([a-zA-Z0-9]+)`).FindStringSubmatch(f.Fix)
	require.NotNil(t, m, f.Fix)
	require.Equal(t, f.Subject, m[1])
	admin := kadm.NewClient(s.Client(t))
	answers, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: m[2], Value: &m[3]}}, m[1])
	require.NoError(t, err)
	for _, a := range answers {
		require.NoError(t, a.Err)
	}
}

func TestCheck_FindsWhatIsWrongWithATopicAndSaysHowToMendIt(t *testing.T) {
	t.Parallel()
	kafka := cluster{parts.RealKafka(t)}
	s := ownServer(t, embedded.PostgresConfig{})
	s.cluster = kafka
	for setting, want := range map[string]struct {
		code     string
		severity check.Severity
	}{
		"max.message.bytes=1000":                {"topic_size", check.SeverityWarning},
		"unclean.leader.election.enable=true":   {"topic_leader", check.SeverityWarning},
		"cleanup.policy=compact":                {"topic_cleanup", check.SeverityInfo},
		"compression.type=gzip":                 {"topic_compression", check.SeverityInfo},
		"message.timestamp.type=LogAppendTime":  {"topic_timestamp", check.SeverityInfo},
		"message.timestamp.before.max.ms=60000": {"topic_timestamp", check.SeverityWarning},
		"message.timestamp.after.max.ms=60000":  {"topic_timestamp", check.SeverityWarning},
		"min.insync.replicas=2":                 {"topic_replicas", check.SeverityError}, // of one
	} {
		key, value, _ := strings.Cut(setting, "=")
		topic := parts.Unique("topic")
		s.CreateTopic(t, topic, 2, map[string]string{key: value})
		c := s.check(t, nil, "--topic", topic)
		found := c.of(want.code)
		require.Len(t, found, 1, "%s: %+v", setting, c.Findings)
		require.Equal(t, want.severity, found[0].Severity, setting)
		require.Equal(t, want.severity != check.SeverityError, c.OK, setting)
		s.healTopic(t, found[0])
		parts.Await(t, setting+" mended", func() (bool, error) { return s.check(t, nil, "--topic", topic).worst(want.code) == "", nil })
	}
}

// The relay and a check of it do not disturb each other.
func TestCheck_RunsBesideTheRelay(t *testing.T) {
	s := newShop(t, parts.AnyVersion, checkedSQL, "")
	port, err := child.FreePort()
	require.NoError(t, err)
	listen := map[string]string{"POSTRIDER_HTTP_LISTEN": fmt.Sprintf("127.0.0.1:%d", port)}
	r := s.run(t, listen)
	c := s.check(t, listen)
	require.Zero(t, c.code, "%+v", c.Findings)
	require.Contains(t, c.of("http_listen")[0].Observed, "the relay has it, process ")
	require.Contains(t, c.of("slot")[0].Observed, "active, pid ")
	require.Empty(t, c.of("slot_holder"))
	require.Equal(t, check.SeverityOK, c.worst("replication_connection"))
	require.Equal(t, 1, r.state(t).Sessions)
	require.Equal(t, "streaming", r.state(t).Phase)

	other := s.check(t, map[string]string{"POSTRIDER_HTTP_LISTEN": listen["POSTRIDER_HTTP_LISTEN"], "POSTRIDER_SLOT_NAME": "another"})
	require.Equal(t, check.SeverityError, other.worst("http_listen"), "that one is for a relay of another slot")

	// The page has the same, made by the relay itself.
	var page struct {
		At       string          `json:"at"`
		OK       bool            `json:"ok"`
		Findings []check.Finding `json:"findings"`
	}
	parts.Await(t, "the check of the page", func() (bool, error) {
		_, err := getJSON(r.url+"/api/check", &page)
		return page.At != "", err
	})
	require.True(t, page.OK, "%+v", page.Findings)
	beside := checked{Findings: page.Findings}
	require.Equal(t, "the relay streams", beside.of("replication_connection")[0].Observed)
	require.Empty(t, beside.of("http_listen"), "it is its own")
	require.Empty(t, beside.of("physical_replication"))
	require.Equal(t, check.SeverityOK, beside.worst("slot"))
	require.Equal(t, 1, r.state(t).Sessions)
	r.Stop(t)
	require.Equal(t, "free", s.check(t, listen).of("http_listen")[0].Observed)
}

// What the relay's monitor knows is said in its words.
func TestCheck_TellsTheConditionsOfTheRelayThatAnswers(t *testing.T) {
	t.Parallel()
	s := newShop(t, parts.AnyVersion, checkedSQL, "health.held_warning = \"1s\"\n[monitor]\ninterval = \"1s\"\n")
	port, err := child.FreePort()
	require.NoError(t, err)
	listen := map[string]string{"POSTRIDER_HTTP_LISTEN": fmt.Sprintf("127.0.0.1:%d", port)}
	r := s.run(t, listen)
	holder := s.Connect(t)
	_, err = holder.Exec(t.Context(), "BEGIN; SELECT txid_current()")
	require.NoError(t, err)
	var held check.Finding
	parts.Await(t, "the condition", func() (bool, error) {
		for _, f := range s.check(t, listen).of("PostriderHeldByTransaction") {
			held = f
		}
		return held.Code != "", nil
	})
	var status struct {
		Verdict struct {
			Conditions []struct{ Name, Next string } `json:"conditions"`
		} `json:"verdict"`
	}
	_, err = getJSON(r.url+"/status", &status)
	require.NoError(t, err)
	require.Contains(t, status.Verdict.Conditions, struct{ Name, Next string }{held.Code, held.Fix}, "the same words")
	require.Equal(t, check.SeverityWarning, held.Severity)
	_, err = holder.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	parts.Await(t, "its end", func() (bool, error) { return s.check(t, listen).worst(held.Code) == "", nil })
}

// From 17 on a standby that is down can keep everything from the relay.
func TestCheck_FindsAStandbyThatHoldsTheRelayBack(t *testing.T) {
	for _, version := range []string{"17", "18"} {
		t.Run(version, func(t *testing.T) {
			s := ownServer(t, embedded.PostgresConfig{Version: version})
			s.do(t, "SELECT pg_create_logical_replication_slot('"+s.slot+"', 'pgoutput', false, false, true)",
				"ALTER SYSTEM SET synchronized_standby_slots = 'gone'", "SELECT pg_reload_conf()")
			var gate check.Finding
			parts.Await(t, "the setting", func() (bool, error) {
				for _, f := range s.check(t, nil).of("PostriderStandbyGate") {
					gate = f
				}
				return gate.Code != "", nil
			})
			require.Equal(t, check.SeverityWarning, gate.Severity)
			require.Contains(t, gate.Subject, "gone")
			fix, _, _ := strings.Cut(gate.Fix, " -- ")
			for statement := range strings.SplitSeq(strings.TrimSuffix(fix, ";"), ";") {
				s.do(t, statement)
			}
			parts.Await(t, "the gate to open", func() (bool, error) { return s.check(t, nil).worst("PostriderStandbyGate") == "", nil })
		})
	}
}

// The path of a link leads to a page of the repository, also in the text.
func TestCheck_PrintsWhereToRead(t *testing.T) {
	s := newShop(t, parts.AnyVersion, checkedSQL, "")
	p := start(t, s.environment(), "check", "--config", s.file)
	require.Zero(t, p.Wait(t))
	links := regexp.MustCompile(`(?m)^  see:      (\S+\.md)#\S+$`).FindAllStringSubmatch(p.Stdout.String(), -1)
	require.NotEmpty(t, links)
	for _, l := range links {
		_, err := os.Stat(filepath.Join("../..", l[1]))
		require.NoError(t, err)
	}
}

func TestCheck_WarnsBeforeTheSlotIsLost(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			s := ownServer(t, embedded.PostgresConfig{Version: version, Params: map[string]string{
				"max_slot_wal_keep_size": "96MB", "min_wal_size": "32MB", "max_wal_size": "1GB", "max_prepared_transactions": "1",
			}})
			s.do(t, "SELECT pg_create_logical_replication_slot('"+s.slot+"', 'pgoutput')")
			require.Empty(t, s.check(t, nil).of("PostriderSlotNearLoss"))
			for range 5 {
				s.do(t, "SELECT pg_logical_emit_message(true, '', 'x')", "SELECT pg_switch_wal()")
			}
			near := s.check(t, nil).of("PostriderSlotNearLoss")
			require.Len(t, near, 1)
			require.Equal(t, check.SeverityWarning, near[0].Severity)
			require.Equal(t, "postrider run --config "+s.file, near[0].Fix)
			require.NotEmpty(t, near[0].WAL)

			r := s.run(t) // which is the fix
			s.awaitConfirmed(t, r)
			parts.Await(t, "the slot to move on", func() (bool, error) {
				s.do(t, "CHECKPOINT") // with which the server says which transactions run: restart_lsn follows that
				return s.check(t, nil).worst("PostriderSlotNearLoss") == "", nil
			})
			r.Stop(t)

			s.do(t, "BEGIN", "INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('order', '1', 'Created')", "PREPARE TRANSACTION 'forgotten'")
			held := map[string]string{"POSTRIDER_HEALTH_HELD_WARNING": "1ms"}
			var f check.Finding
			parts.Await(t, "the prepared transaction", func() (bool, error) {
				for _, f = range s.check(t, held).of("PostriderHeldByTransaction") {
					return true, nil
				}
				return false, nil
			})
			require.Equal(t, "prepared transaction forgotten", f.Subject)
			require.Contains(t, f.Fix, "COMMIT PREPARED 'forgotten', or ROLLBACK PREPARED")
			s.do(t, f.Fix) // a comment: which of the two is for its transaction manager to say
			require.NotEmpty(t, s.check(t, held).of("PostriderHeldByTransaction"))
			s.do(t, "ROLLBACK PREPARED 'forgotten'")
			require.Empty(t, s.check(t, held).of("PostriderHeldByTransaction"))
		})
	}
}
