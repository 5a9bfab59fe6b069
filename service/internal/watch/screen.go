package watch

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"example.com/sash/service/internal/wire"
)

// reconnect is the pause before a stream that ended is reopened.
const reconnect = 2 * time.Second

// Screen shows the stream on a terminal until the user quits or the context ends. It reopens a stream that ends; failing
// to open the first one is an error.
func (c *Client) Screen(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	program := tea.NewProgram(&screen{from: c.Admin}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		seen := false
		for ctx.Err() == nil {
			err := c.Watch(ctx, func(s wire.Event, _ []byte) bool {
				seen = true
				program.Send(s)
				return true
			})
			if ctx.Err() != nil {
				return // the user has quit
			}
			if !seen || errors.Is(err, ErrToken) {
				failed <- err
				program.Quit()
				return
			}
			program.Send(lost{})
			select {
			case <-ctx.Done():
			case <-time.After(reconnect):
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

// lost is the message that the stream has ended.
type lost struct{}

// A screen is the model of the terminal.
type screen struct {
	from          string
	state         *wire.Event
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
	case wire.Event:
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
		text = Text(s.state, s.width, max(1, s.height-2), !s.lost)
	}
	foot := p.tint("q quits", 0)
	if s.lost { // the numbers are old: they are faint
		lines := strings.Split(text, "\n")
		for i := range lines {
			lines[i] = p.tint(lines[i], 0)
		}
		text = strings.Join(lines, "\n")
		foot = p.tint("no state from "+s.from+" since "+clock(s.state.At)+", reconnecting", red) + "  " + foot
	}
	v := tea.NewView(text + "\n\n" + foot)
	v.AltScreen = true
	return v
}
