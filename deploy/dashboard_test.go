package deploy

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos struct{ X, Y, W, H int } `json:"gridPos"`
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit       string `json:"unit"`
			Thresholds struct {
				Steps []struct{ Value *float64 } `json:"steps"`
			} `json:"thresholds"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

type dashboard struct {
	Title      string  `json:"title"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	b, err := os.ReadFile("grafana/postrider.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(b, &d))
	require.NotEmpty(t, d.Panels)
	return d
}

func TestDashboard_HasNoPanelThatShowsNothing(t *testing.T) {
	ids, rows := map[int]bool{}, 0
	for _, p := range readDashboard(t).Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		if p.Type == "row" {
			rows++
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Thresholds.Steps, p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			require.NotEmpty(t, target.Expr, p.Title)
			require.False(t, refs[target.RefID], "%s: two queries %s", p.Title, target.RefID)
			refs[target.RefID] = true
			require.True(t, len(p.Targets) == 1 || target.LegendFormat != "", "%s: which line is which?", p.Title)
		}
	}
	require.Equal(t, 5, rows)
}

func TestDashboard_HasPanelsSideBySide(t *testing.T) {
	at := map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, at[[2]int{x, y}], "%s lies over it", p.Title)
				at[[2]int{x, y}] = p.Title
			}
		}
	}
}

// Grafana shows "No data" for a query that asks for what does not exist, and nobody knows whether that is good.
func TestDashboard_AsksForWhatExists(t *testing.T) {
	d := readDashboard(t)
	known := readCatalogue(t)
	variables := regexp.MustCompile(`\$[a-z_]+`)
	names := map[string]bool{"$__rate_interval": true}
	for _, v := range d.Templating.List {
		names["$"+v.Name] = true
		if v.Type == "query" {
			list := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
			require.NotNil(t, list, v.Definition)
			require.Contains(t, known.labels[known.seriesOf(t, list[1])[0]], list[2], v.Definition)
		}
	}
	require.True(t, names["$datasource"] && names["$slot"])

	var queries []string
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			known.seriesOf(t, target.Expr)
			for _, name := range variables.FindAllString(target.Expr, -1) {
				require.True(t, names[name], "%s: there is no variable %s", p.Title, name)
			}
			require.True(t, strings.Contains(target.Expr, `slot="$slot"`), "%s shows other slots too: %s", p.Title, target.Expr)
			queries = append(queries, strings.NewReplacer("$__rate_interval", "5m", "$job", "postrider", "$slot", "orders").Replace(target.Expr))
		}
	}
	checkSyntax(t, queries)
}
