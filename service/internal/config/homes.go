package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Homes are the URLs of homes by name: several, each with a name, or one whose name may be empty.
type Homes map[string]string

// homeName is what names of homes look like. They are values of a label of metrics.
var homeName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

const aHomeName = "1 to 32 of a-z, 0-9, - and _"

// ParseHomes reads the homes: "eu=URL" each, or "URL" for one without a name.
func ParseHomes(texts []string) (Homes, error) {
	homes := make(Homes, len(texts))
	for _, text := range texts {
		name, url, named := strings.Cut(text, "=")
		if !named || strings.ContainsAny(name, ":/?") { // the = is part of the URL
			name, url = "", text
		} else if !homeName.MatchString(name) {
			return nil, fmt.Errorf("the name before the first = is %q: a name of a home is %s, such as eu=redis://10.0.0.7:6379", clip(name), aHomeName)
		}
		switch _, twice := homes[name]; {
		case url == "":
			return nil, fmt.Errorf("the URL of %s is empty: give NAME=URL", cmp.Or(name, "a home"))
		case twice && name != "":
			return nil, fmt.Errorf("there are two homes %s: give each another name", name)
		case twice:
			return nil, errors.New("there are several homes without a name: give NAME=URL for each")
		}
		homes[name] = url
	}
	if _, unnamed := homes[""]; unnamed && len(homes) > 1 {
		return nil, errors.New("one of several homes has no name: give NAME=URL for each")
	}
	return homes, nil
}

// ErrNoHome says that a rule with scope: global has no home.
var ErrNoHome = errors.New("scope: global needs the home, the Redis that all regions share: give --home, and --redis with the one of this region")

// HomeOf returns the home of a place with scope: global, of homes by name: the one that it names, or the only one. It is an
// error that lists the names if there is none.
func HomeOf[T any](homes map[string]T, p Place) (home T, err error) {
	if home, named := homes[p.Home]; named {
		return home, nil
	}
	names := slices.Sorted(maps.Keys(homes))
	switch {
	case len(names) == 0:
		return home, ErrNoHome
	case p.Home == "" && len(names) == 1:
		return homes[names[0]], nil
	case p.Home == "":
		return home, fmt.Errorf("scope: global, and there are several homes: add home: with one of %s", strings.Join(names, ", "))
	case names[0] == "":
		return home, fmt.Errorf("home: %s, and the only home has no name: give --home %s=URL, or remove home", p.Home, p.Home)
	default:
		return home, fmt.Errorf("home: %s is no home of --home: use one of %s", p.Home, strings.Join(names, ", "))
	}
}

const homeNeedsScope = "home names the Redis that keeps the charges of all regions: give scope: global beside it, or remove home"

// readHome reads the home of a rule whose scope was read.
func (b *ruleBody) readHome(rule *Rule) error {
	if b.home == nil {
		return nil
	}
	if !rule.Place.Global {
		return b.errorf(b.home, "%s", homeNeedsScope)
	}
	var name string
	if err := b.text("home", &name)(b.home); err != nil {
		return err
	}
	if !homeName.MatchString(name) {
		return b.errorf(b.home, "home %q must be a name of --home: %s", clip(name), aHomeName)
	}
	rule.Place.Home = name
	return nil
}
