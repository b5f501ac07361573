//! A manual page of a command: what the help tells, in the sections and the order that manual pages have.

use std::io;

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

/// Line that begins the examples in the text behind a command's help; they end with an empty line.
const EXAMPLES: &str = "Examples:\n";
/// Line that begins the list of exit statuses there.
const STATUS: &str = "Exit status:";

/// Environment variables, and which commands look at them; none: all.
const ENVIRONMENT: &[(&str, &[&str], &str)] = &[
    (
        "TOW_HOME",
        &[],
        "One folder for everything of this service: configuration, state and data. Without it they lie where XDG_CONFIG_HOME, \
         XDG_STATE_HOME, XDG_DATA_HOME and XDG_RUNTIME_DIR say, or in their usual places below the home folder.",
    ),
    ("TOW_LOG", &[], "What -v sets, in detail: a filter such as towpath_link=debug."),
    ("TOW_RSH", &["tow-cp", "tow-sync"], "What reaches the other side, if not ssh and there is no -e."),
    (
        "TOW_SANDBOX",
        &["tow-cp", "tow-sync", "tow-daemon"],
        "If it is off, the daemon and the far end of a copy do not confine themselves.",
    ),
    (
        "TOW_RENDEZVOUS",
        &["tow-share", "tow-get", "tow-put", "tow-daemon"],
        "Rendezvous servers, each NODE@HOST:PORT as tow rendezvous prints it, with commas between them. They take the place of \
         the configuration's; empty: none.",
    ),
    ("NO_COLOR", &[], "If it is set and not empty, the log has no colours."),
];

/// Files, as they lie without TOW_HOME.
const FILES: &[(&str, &str)] = &[
    ("~/.config/towpath/node.key", "The private key of this node, made at the first start."),
    ("~/.config/towpath/config.toml", "The configuration, if there is one."),
    ("~/.local/state/towpath/", "Indexes, what an interrupted transfer needs to go on, shares."),
    ("~/.local/share/towpath/", "Objects that the service owns: streams, descriptors of trees."),
    ("$XDG_RUNTIME_DIR/towpath/tow.sock", "The socket of the daemon."),
];

/// Exit statuses of all commands but sync.
const STATUSES: &[(&str, &str)] = &[
    ("0", "Done."),
    ("1", "Failed."),
    ("2", "The command line is not understood, or a ticket is none."),
    ("3", "Partly done: some files failed or were left out, each named on standard error."),
    ("130", "Interrupted; what came is kept."),
];

/// Those of sync: rsync's, but for 2, which is 1 there.
const SYNC_STATUSES: &[(&str, &str)] = &[
    ("0", "Done."),
    ("2", "The command line is not understood."),
    ("3", "The destination is of the wrong kind."),
    ("5", "The program at the other side may not be run, or something was refused."),
    ("11", "No space is left, or source or destination as a whole can't be read or written."),
    ("12", "The other side can't be reached or hung up, or what came is not what was asked for."),
    ("20", "Interrupted; what came is kept."),
    (
        "23",
        "A source or the destination's directory is not there, or some files could not be copied, each named.",
    ),
    ("24", "Some files vanished from the source meanwhile."),
    ("25", "Deletions were stopped by a limit."),
    ("30", "Nothing came for too long."),
];

/// The page's name: `tow-cp`.
pub fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// The page, as troff.
pub fn page(command: &Command) -> io::Result<Vec<u8>> {
    let (name, plain) = (name(command), plain(command.clone()));
    let man = Man::new(plain.clone())
        .title(&*name)
        .source(concat!("tow ", env!("CARGO_PKG_VERSION")))
        .manual("Towpath");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    Man::new(command.clone()).render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    let mut after = Roff::default();
    notes(&mut after, command);
    arguments(&mut after, command);
    after.to_writer(&mut page)?;
    if plain.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if plain.get_subcommands().any(|it| !it.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::default();
    section(
        &mut rest,
        "EXIT STATUS",
        if name == "tow-sync" { SYNC_STATUSES } else { STATUSES }.iter().copied(),
    );
    let variables =
        ENVIRONMENT.iter().filter(|(_, of, _)| of.is_empty() || name == "tow" || of.contains(&&*name));
    section(&mut rest, "ENVIRONMENT", variables.map(|(variable, _, text)| (*variable, *text)));
    section(&mut rest, "FILES", FILES.iter().copied());
    examples(&mut rest, command);
    see_also(&mut rest, &name);
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// The command without what has a place of its own: arguments come before options, and a remark in a heading is told in
/// the description, since headings are written in capitals, in which -l would be -L.
fn plain(command: Command) -> Command {
    command.mut_args(|arg| {
        let heading =
            arg.get_help_heading().map(|heading| heading.split(" (").next().unwrap_or(heading).to_owned());
        let is_positional = arg.is_positional();
        match heading {
            Some(heading) => arg.help_heading(heading),
            None if is_positional => arg.hide(true),
            None => arg,
        }
    })
}

/// Text behind the help except examples and exit statuses, and the remarks of headings.
fn notes(roff: &mut Roff, command: &Command) {
    let mut headings: Vec<&str> = command.get_arguments().filter_map(Arg::get_help_heading).collect();
    headings.dedup();
    for (heading, remark) in headings.iter().filter_map(|heading| heading.split_once(" (")) {
        roff.control("PP", []);
        roff.text([roman(format!("{heading}: {}.", remark.trim_end_matches(')')))]);
    }
    let text = behind(command);
    for paragraph in text.split("\n\n").filter(|it| !it.starts_with(EXAMPLES.trim_end())) {
        let prose = paragraph.split(STATUS).next().unwrap_or_default();
        let prose = prose.split_whitespace().collect::<Vec<_>>().join(" ");
        if !prose.is_empty() {
            roff.control("PP", []);
            roff.text([roman(prose)]);
        }
    }
}

fn behind(command: &Command) -> String {
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    help.map(ToString::to_string).unwrap_or_default()
}

fn arguments(roff: &mut Roff, command: &Command) {
    let all = command.get_positionals().filter(|arg| !arg.is_hide_set());
    let all: Vec<(String, String)> = all
        .map(|arg| {
            let names = arg.get_value_names().unwrap_or_default();
            let help = arg.get_long_help().or_else(|| arg.get_help());
            (names.join(" "), help.map(ToString::to_string).unwrap_or_default())
        })
        .collect();
    if !all.is_empty() {
        roff.control("SH", ["ARGUMENTS"]);
    }
    for (name, help) in all {
        roff.control("TP", []);
        roff.text([italic(name)]);
        roff.text([roman(help)]);
    }
}

fn section<'a>(roff: &mut Roff, title: &str, entries: impl Iterator<Item = (&'a str, &'a str)>) {
    roff.control("SH", [title]);
    for (name, text) in entries {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(text)]);
    }
}

fn examples(roff: &mut Roff, command: &Command) {
    let text = behind(command);
    let Some((_, from)) = text.split_once(EXAMPLES) else { return };
    roff.control("SH", ["EXAMPLES"]);
    roff.control("nf", []);
    for line in from.lines().take_while(|line| !line.is_empty()) {
        roff.text([roman(line.trim_start_matches("  "))]);
    }
    roff.control("fi", []);
}

fn see_also(roff: &mut Roff, name: &str) {
    let near: &[&str] = match name {
        "tow" => &["tow-cp", "tow-sync", "tow-share", "tow-get", "tow-put", "tow-daemon", "ssh"],
        "tow-cp" => &["tow", "tow-sync", "scp", "ssh"],
        "tow-sync" => &["tow", "tow-cp", "rsync", "ssh"],
        "tow-share" | "tow-put" => &["tow", "tow-get", "tow-ls", "tow-done"],
        "tow-get" => &["tow", "tow-share", "tow-put"],
        "tow-daemon" => &["tow", "tow-status", "systemd"],
        _ => &["tow", "tow-daemon"],
    };
    roff.control("SH", ["SEE ALSO"]);
    let names = near.iter().map(|name| format!("{name}(1)")).collect::<Vec<_>>();
    roff.text([roman(names.join(", "))]);
}
