"""What commands there are, where each lives, and the order in which help shows them. Imports none of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One command: ``target`` is ``module:attribute`` below ``wakeful.cli``, ``first`` puts it at the head of help."""

    name: str
    summary: str
    target: str
    first: bool = False


CATALOGUE: tuple[Entry, ...] = (
    Entry("up", "Run the scheduler until it is told to stop.", "up:up", first=True),
    Entry("demo", "Show the main job on real processes.", "demo:demo", first=True),
    Entry("wake", "Ask for a run of an agent, now or later.", "wakes:wake", first=True),
    Entry("why", "Say why a wake or a run stands where it stands.", "why:why", first=True),
    Entry("runs", "List runs, newest first.", "runs:runs", first=True),
    Entry("logs", "Show what a run printed.", "logs:logs", first=True),
    Entry("panic", "Stop everything and admit nothing more.", "panic:panic", first=True),
    Entry("wakes", "List wakes, newest first.", "wakes:wakes"),
    Entry("resume", "Lift a panic, or a pause.", "pauses:resume"),
    Entry("pause", "Pause a company, a project or an agent.", "pauses:pause"),
    Entry("drain", "Admit and start nothing more until undrained.", "drains:drain"),
    Entry("undrain", "End a drain.", "drains:undrain"),
    Entry("hold", "Hold an issue and everything below it.", "holds:hold"),
    Entry("release", "End a hold.", "holds:release"),
    Entry("restore", "End a hold and put back what it cancelled.", "holds:restore"),
    Entry("interrupt", "Stop the run on an issue, to deliver what is saved there.", "interrupts:interrupt"),
    Entry("admit", "Release one pending wake now, or say why not.", "admissions:admit"),
    Entry("status", "Decide the status of issues, or list the decisions.", "statuses:status"),
    Entry("dispatch", "Do one pass over the status intents that are due.", "dispatches:dispatch"),
    Entry("retry", "Ask for another run in place of one that did not succeed.", "runs:retry"),
    Entry("rearm", "Save a wake that has ended once more.", "wakes:rearm"),
    Entry("retire", "Take a pending wake back.", "wakes:retire"),
    Entry("run", "List, show or stop runs, or let one take an issue.", "runs:run"),
    Entry("company", "Add, list or show companies.", "companies:company"),
    Entry("project", "Add, list or show projects.", "projects:project"),
    Entry("agent", "Add, list or show agents.", "agents:agent"),
    Entry("issue", "Create, assign, list or show issues.", "issues:issue"),
    Entry("comment", "Save, change or list comments.", "comments:comment"),
    Entry("card", "Ask, answer, withdraw or list cards.", "cards:card"),
    Entry("budget", "Set, raise or list budgets.", "money:budget"),
    Entry("spend", "Record or list what was spent.", "money:spend"),
    Entry("limit", "List, close or clear providers' accounts.", "limits:limit"),
    Entry("chat", "Retry a failed run through a chat, settle, list or show chat actions.", "chats:chat"),
    Entry("recovery", "Open, list or resolve recovery actions.", "recoveries:recovery"),
    Entry("audit", "List who changed what.", "audits:audit"),
    Entry("host", "List the hosts, or declare one dead.", "hosts:host"),
    Entry("settings", "Show or change the settings of the instance.", "settings:settings"),
    Entry("migrate", "Bring the database's schema up to date.", "migrate:migrate"),
    Entry("doctor", "Check everything that wakeful needs.", "doctor:doctor"),
    Entry("config", "Show the effective configuration and where it comes from.", "configuration:configuration"),
    Entry("plugins", "Show the plugins, in the order they are loaded.", "plugins:plugins"),
    Entry("plugin", "Write the beginnings of a plugin.", "plugin_new:plugin"),
)
