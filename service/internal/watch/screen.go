package watch

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
)

// again is how long to wait before a stream that ended is opened again.
const again = 2 * time.Second

// Screen shows the stream on a terminal until the person or the context ends it. A stream that ends is opened again;
// one that could not be opened at first is an error.
func (c *Client) Screen(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	program := tea.NewProgram(&screen{from: c.Admin}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		seen := false
		for ctx.Err() == nil {
			err := c.Watch(ctx, func(s State, _ []byte) bool {
				seen = true
				program.Send(s)
				return true
			})
			if ctx.Err() != nil {
				return // the person has left
			}
			if !seen || errors.Is(err, ErrToken) {
				failed <- err
				program.Quit()
				return
			}
			program.Send(lost{})
			select {
			case <-ctx.Done():
			case <-time.After(again):
			}
		}
	}()
	_, err := program.Run()
	stop()
	if err := <-failed; err != nil {
		return err
	}
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// lost says that the stream has ended.
type lost struct{}

// A screen is what the terminal shows.
type screen struct {
	from          string
	state         *State
	lost          bool
	width, height int
}

// Init implements tea.Model.
func (s *screen) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return s, tea.Quit
		}
	case State:
		s.state, s.lost = &msg, false
	case lost:
		s.lost = true
	}
	return s, nil
}

// View implements tea.Model.
func (s *screen) View() tea.View {
	p := &page{width: s.width, color: true}
	text := "waiting for " + s.from
	if s.state != nil {
		text = Text(s.state, s.width, max(1, s.height-2), true)
	}
	foot := p.tint("q ends it", 0)
	if s.lost {
		foot = p.tint("no connection to "+s.from+": trying again", red) + "  " + foot
	}
	v := tea.NewView(text + "\n\n" + foot)
	v.AltScreen = true
	return v
}
