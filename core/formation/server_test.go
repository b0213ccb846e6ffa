package formation

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

func at(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }

// open returns server 5, bootstrap_expect 3, at second 0.
func open(t *testing.T, rec Record) *Server {
	t.Helper()
	s, err := New(Config{ID: 5, Name: "n5", Expect: 3, Record: rec, Draw: func() ClusterID { return 0xc5 }}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func alive(id model.NodeID) Member {
	return Member{ID: id, Name: "n" + id.String()[15:], Alive: true, Expect: 3}
}

func askBy(candidate model.NodeID, voters ...model.NodeID) Message {
	return Message{Kind: KindAsk, From: candidate, To: 5, Ballot: Ballot{Candidate: candidate, Cluster: 0xc1, Voters: voters}}
}

// TestObjections has one row for each reason not to agree.
func TestObjections(t *testing.T) {
	other := Ballot{Candidate: 2, Cluster: 0xc2, Voters: []model.NodeID{2, 4, 5}}
	ask := askBy(1, 1, 3, 5)
	for name, c := range map[string]struct {
		rec     Record
		members []Member
		ask     Message
		want    Message
	}{
		"agrees":                 {ask: ask, members: []Member{alive(1), alive(3)}},
		"knows nobody":           {ask: ask},
		"bound":                  {ask: ask, rec: Record{Yes: &other}, want: Message{Why: WhyBound, Node: 2, Cluster: 0xc2}},
		"bound to itself":        {ask: askBy(8, 5, 8, 9), rec: Record{Yes: &Ballot{Candidate: 5, Cluster: 0xc3, Voters: []model.NodeID{5, 6, 7}}}, want: Message{Why: WhyBound, Node: 5, Cluster: 0xc3}},
		"yields to a lower":      {ask: ask, rec: Record{Yes: &Ballot{Candidate: 5, Cluster: 0xc3, Voters: []model.NodeID{5, 6, 7}}}},
		"seen":                   {ask: ask, rec: Record{Seen: 0xc4}, want: Message{Why: WhyCluster, Cluster: 0xc4}},
		"seen now":               {ask: ask, members: []Member{{ID: 9, Cluster: 0xc4}}, want: Message{Why: WhyCluster, Cluster: 0xc4}},
		"two voters":             {ask: askBy(1, 1, 5), want: Message{Why: WhyExpect, Node: 5, Expect: 3}},
		"five expected by other": {ask: ask, members: []Member{{ID: 4, Alive: true, Expect: 5}}, want: Message{Why: WhyExpect, Node: 4, Expect: 5}},
		"five expected by dead":  {ask: ask, members: []Member{{ID: 4, Expect: 5}}},
		"not asked":              {ask: ask, members: []Member{alive(1), alive(7)}, want: Message{Why: WhyUnseen, Node: 7}},
		"waits to be added":      {ask: ask, members: []Member{alive(1), {ID: 7, Alive: true}}},
		"few":                    {ask: ask, members: []Member{{ID: 6, Expect: 3}, {ID: 7, Expect: 3}, {ID: 8, Expect: 3}, {ID: 9, Expect: 3}, {ID: 10, Expect: 3}}, want: Message{Why: WhyFew, Expect: 6}},
		"lost":                   {ask: ask, rec: Record{Lost: []ClusterID{0xc1}}, want: Message{Why: WhyLost}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, c.rec)
			s.Members(at(0), c.members)
			s.Members(at(1.9), c.members)
			s.Ready()
			s.Tick(at(2)) // settled
			if name == "bound to itself" || name == "yields to a lower" {
				s = open(t, c.rec) // before it looks at its ballot
			}
			s.Ready()
			if err := s.Step(at(2), c.ask); err != nil {
				t.Fatal(err)
			}
			r := s.Ready()
			var got []Message
			for _, m := range r.Messages {
				if m.Kind == KindYes || m.Kind == KindNo {
					got = append(got, m)
				}
			}
			if len(got) != 1 || got[0].To != c.ask.From || got[0].Ballot.Cluster != 0xc1 {
				t.Fatalf("answers %+v", r.Messages)
			}
			m := got[0]
			if no := (Message{Why: m.Why, Node: m.Node, Cluster: m.Cluster, Expect: m.Expect}); no.Why != c.want.Why || no.Node != c.want.Node || no.Cluster != c.want.Cluster || no.Expect != c.want.Expect {
				t.Errorf("answered %+v, want %+v", no, c.want)
			}
			yes := r.Record != nil && r.Record.Yes != nil && r.Record.Yes.Cluster == 0xc1
			if (m.Kind == KindYes) != yes || (c.want.Why == 0) != yes {
				t.Errorf("kind %d, record %+v", m.Kind, r.Record)
			}
		})
	}
}

func TestAdded(t *testing.T) {
	other := Ballot{Candidate: 2, Cluster: 0xc2, Voters: []model.NodeID{2, 4, 5}}
	own := Ballot{Candidate: 5, Cluster: 0xc5, Voters: []model.NodeID{5, 6, 7}}
	for name, c := range map[string]struct {
		rec    Record
		refuse string
	}{
		"free":         {},
		"seen":         {rec: Record{Seen: 0xc1}},
		"seen another": {rec: Record{Seen: 0xc9}},
		"own ballot":   {rec: Record{Yes: &own}},
		"bound":        {rec: Record{Yes: &other}, refuse: "which may still form"},
		"already":      {rec: Record{Formed: &Ballot{Cluster: 0xc1}}},
		"of another":   {rec: Record{Formed: &other}, refuse: "empty data directory"},
	} {
		s := open(t, c.rec)
		s.Ready()
		err := s.Added(at(1), 0xc1)
		switch {
		case c.refuse != "":
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.refuse) || s.Cluster() == 0xc1 {
				t.Errorf("%s: %v, cluster %s", name, err, s.Cluster())
			}
		case err != nil || s.Cluster() != 0xc1:
			t.Errorf("%s: %v, cluster %s", name, err, s.Cluster())
		}
		if r := s.Ready(); r.Decision != nil {
			t.Errorf("%s: who is added begins no group: %+v", name, r.Decision)
		}
	}
}

// TestSenseless: what no server sends changes nothing.
func TestSenseless(t *testing.T) {
	s := open(t, Record{Yes: &Ballot{Candidate: 2, Cluster: 0xc2, Voters: []model.NodeID{2, 4, 5}}})
	s.Ready()
	ballot := func(b Ballot) Message { return Message{Kind: KindAsk, From: 1, To: 5, Ballot: b} }
	for name, m := range map[string]Message{
		"no kind":              {From: 1, To: 5},
		"to another":           {Kind: KindQuery, From: 1, To: 6},
		"from itself":          {Kind: KindQuery, From: 5, To: 5},
		"ballot of another":    {Kind: KindAsk, From: 2, To: 5, Ballot: askBy(1, 1, 3, 5).Ballot},
		"ballot without it":    askBy(1, 1, 3, 4),
		"no candidate":         ballot(Ballot{Cluster: 1, Voters: []model.NodeID{1, 3, 5}}),
		"no cluster":           ballot(Ballot{Candidate: 1, Voters: []model.NodeID{1, 3, 5}}),
		"candidate no voter":   ballot(Ballot{Candidate: 1, Cluster: 1, Voters: []model.NodeID{3, 5}}),
		"descends":             ballot(Ballot{Candidate: 1, Cluster: 1, Voters: []model.NodeID{5, 1}}),
		"twice":                ballot(Ballot{Candidate: 1, Cluster: 1, Voters: []model.NodeID{1, 1, 5}}),
		"voter and witness":    ballot(Ballot{Candidate: 1, Cluster: 1, Voters: []model.NodeID{1, 5}, Witnesses: []model.NodeID{5}}),
		"too many":             ballot(Ballot{Candidate: 1, Cluster: 1, Voters: []model.NodeID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}),
		"no cluster formed":    {Kind: KindFormed, From: 1, To: 5},
		"a later kind":         {Kind: 77, From: 1, To: 5},
		"id zero in the lists": ballot(Ballot{Candidate: 1, Cluster: 1, Voters: []model.NodeID{0, 1, 5}}),
	} {
		if err := s.Step(at(0.1), m); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if r := s.Ready(); r.Record != nil || r.Decision != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	s.Tick(at(0.1)) // its own query
	s.Ready()
	for name, m := range map[string]Message{
		"a withdrawal by another":    {Kind: KindWithdrawn, From: 4, To: 5, Ballot: Ballot{Candidate: 2, Cluster: 0xc2}},
		"a withdrawal of another":    {Kind: KindWithdrawn, From: 2, To: 5, Ballot: Ballot{Candidate: 2, Cluster: 0xc1}},
		"a yes to no ballot":         {Kind: KindYes, From: 2, To: 5, Ballot: Ballot{Candidate: 5, Cluster: 0xc5}},
		"a lost no to no ballot":     {Kind: KindNo, From: 2, To: 5, Why: WhyLost, Ballot: Ballot{Candidate: 5, Cluster: 0xc5}},
		"a query of another's":       {Kind: KindQuery, From: 2, To: 5, Ballot: Ballot{Candidate: 4, Cluster: 0xc1}},
		"a query of what is not his": {Kind: KindQuery, From: 4, To: 5, Ballot: Ballot{Candidate: 2, Cluster: 0xc2}},
	} {
		if err := s.Step(at(0.1), m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r := s.Ready(); r.Record != nil || r.Decision != nil || len(r.Messages) != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestMistakenRecover: a cluster that an operator gave up, and that formed all the
// same, takes its voter back as long as that is free.
func TestMistakenRecover(t *testing.T) {
	b := Ballot{Candidate: 2, Cluster: 0xc2, Voters: []model.NodeID{2, 4, 5}}
	formed := Message{Kind: KindFormed, From: 2, To: 5, Ballot: b}
	s := open(t, Record{Yes: &b})
	if err := s.Recover(at(1), 0xc2); err != nil {
		t.Fatal(err)
	}
	s.Ready()
	if err := s.Step(at(2), formed); err != nil {
		t.Fatal(err)
	}
	if r := s.Ready(); r.Decision == nil || r.Decision.Cluster != 0xc2 || r.Record.Formed == nil {
		t.Errorf("a free one: %+v", r)
	}

	s = open(t, Record{Yes: &Ballot{Candidate: 1, Cluster: 0xc1, Voters: []model.NodeID{1, 3, 5}}, Lost: []ClusterID{0xc2}})
	s.Ready()
	if err := s.Step(at(2), formed); err != nil {
		t.Fatal(err)
	}
	if r := s.Ready(); r.Decision != nil || r.Record.Yes == nil || r.Record.Seen != 0xc2 {
		t.Errorf("one that is bound: %+v", r)
	}
}

func TestRefusedConfig(t *testing.T) {
	draw := func() ClusterID { return 1 }
	for name, c := range map[string]Config{
		"no id":       {Draw: draw},
		"no draw":     {ID: 5},
		"negative":    {ID: 5, Draw: draw, Expect: -1},
		"ten":         {ID: 5, Draw: draw, Expect: 10},
		"copied yes":  {ID: 5, Draw: draw, Record: Record{Yes: &Ballot{Candidate: 1, Cluster: 1, Voters: []model.NodeID{1}}}},
		"copied":      {ID: 5, Draw: draw, Record: Record{Formed: &Ballot{Candidate: 1, Cluster: 1, Voters: []model.NodeID{1}}}},
		"both":        {ID: 5, Draw: draw, Record: Record{Yes: &Ballot{Candidate: 5, Cluster: 1, Voters: []model.NodeID{5}}, Formed: &Ballot{Cluster: 2}}},
		"half ballot": {ID: 5, Draw: draw, Record: Record{Formed: &Ballot{Candidate: 1, Cluster: 1}}},
	} {
		if _, err := New(c, at(0)); !errors.Is(err, ErrConfig) && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAlone: with bootstrap_expect 1 a server is a cluster once it has looked around
// for Stable.
func TestAlone(t *testing.T) {
	s, err := New(Config{ID: 5, Name: "n5", Expect: 1, Draw: func() ClusterID { return 0xc5 }}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	s.Tick(at(1.9))
	if r := s.Ready(); r.Record != nil || r.Decision != nil {
		t.Errorf("too early: %+v", r)
	}
	s.Tick(at(2))
	if r := s.Ready(); r.Record == nil || r.Decision == nil || r.Decision.Cluster != 0xc5 || len(r.Decision.Voters) != 1 {
		t.Errorf("no cluster: %+v", r)
	}
	if r := s.Ready(); r.Record != nil || r.Decision != nil {
		t.Errorf("twice: %+v", r)
	}
}

// TestGivenUpBallot: a candidate whose ballot an operator gave up on one server
// takes it back, also if it has that server's yes.
func TestGivenUpBallot(t *testing.T) {
	s := open(t, Record{})
	all := []Member{alive(6), alive(7)}
	s.Members(at(0), all)
	s.Members(at(2), all)
	s.Ready()
	ballot := Ballot{Candidate: 5, Cluster: 0xc5}
	for _, m := range []Message{
		{Kind: KindYes, From: 6, To: 5, Ballot: ballot},
		{Kind: KindNo, From: 6, To: 5, Ballot: ballot, Why: WhyUnseen, Node: 9}, // from before the yes
		{Kind: KindNo, From: 6, To: 5, Ballot: ballot, Why: WhyLost},
	} {
		if s.own() == nil {
			t.Fatal("took the ballot back too early")
		}
		if err := s.Step(at(2.1), m); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.Ready(); s.own() != nil || r.Record == nil || r.Record.Yes != nil {
		t.Errorf("holds on to its ballot: %+v", r)
	}
}
