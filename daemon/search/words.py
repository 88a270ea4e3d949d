"""Words that carry no meaning in a search for tools, and words that mean the same."""

from __future__ import annotations

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any anyone are as at be because been before being below
    between both but by can could did do does doing down during each either etc every few for from
    further had has have having he her here hers him his how i if in into is it its itself just let like
    lot many may me might mine more most much must my myself near need no nor not of off on once one
    only or other our ours out over own per same shall she should so some such than that the their
    theirs them then there these they this those through to too under until up upon us use used uses
    using very via want was we were what when where whether which while who whom whose why will with
    within without would yes yet you your yours please help needs needed wanted wants show shows give
    gives given tell tells know able hello hi hey thanks thank kindly looking could specific
    specifically based provide provides provided providing related including include includes according
    various several different certain tool tools function api server mcp
    """.split()  # noqa: SIM905 - a list of words is easier to read without quotes
)
"""English function words, and the words of asking. Tools are never found by them."""

SYNONYMS: tuple[tuple[str, ...], ...] = (
    ("add", "create", "insert", "new", "make"),
    ("article", "paper", "publication"),
    ("audio", "sound", "speech", "voice"),
    ("build", "compile"),
    ("buy", "purchase", "order"),
    ("calendar", "schedule", "appointment", "event"),
    ("car", "vehicle", "automobile"),
    ("chart", "graph", "plot", "diagram"),
    ("chat", "message", "conversation"),
    ("city", "town", "place", "location"),
    ("client", "customer"),
    ("cloud", "aws", "azure", "gcp"),
    ("clone", "copy", "duplicate"),
    ("code", "program", "script", "source"),
    ("commit", "checkin"),
    ("company", "business", "firm", "corporation"),
    ("compare", "diff", "difference"),
    ("convert", "transform", "translate", "change"),
    ("cost", "price", "fee"),
    ("crypto", "cryptocurrency", "bitcoin", "coin", "token"),
    ("currency", "money", "exchange"),
    ("current", "now", "today", "present"),
    ("database", "db", "sql", "table"),
    ("delete", "remove", "erase", "drop", "clear"),
    ("deploy", "release", "publish"),
    ("directory", "folder", "dir"),
    ("doc", "docs", "document", "documentation"),
    ("download", "fetch", "get", "retrieve"),
    ("edit", "modify", "update", "change", "alter"),
    ("email", "mail", "inbox", "gmail"),
    ("error", "exception", "bug", "issue", "fault"),
    ("execute", "run", "launch", "invoke", "start"),
    ("file", "document"),
    ("film", "movie", "cinema"),
    ("find", "search", "lookup", "query", "locate", "discover"),
    ("flight", "airline", "airport", "plane"),
    ("food", "meal", "recipe", "dish"),
    ("forecast", "weather", "temperature"),
    ("game", "gaming", "player"),
    ("holiday", "vacation", "trip", "travel"),
    ("hotel", "accommodation", "lodging", "room"),
    ("house", "property", "estate", "apartment"),
    ("image", "picture", "photo", "photograph"),
    ("internet", "web", "online", "website"),
    ("issue", "ticket", "task"),
    ("job", "career", "vacancy", "employment"),
    ("k8s", "kubernetes", "pod", "cluster"),
    ("list", "enumerate", "overview", "browse"),
    ("lyrics", "song", "music", "track"),
    ("map", "maps", "route", "direction", "navigation"),
    ("medicine", "drug", "medication", "pharmacy"),
    ("merge", "combine", "join"),
    ("news", "headline", "headlines"),
    ("note", "memo", "memory"),
    ("open", "launch", "navigate", "visit"),
    ("page", "website", "url", "webpage"),
    ("password", "credential", "secret", "login"),
    ("people", "person", "user", "contact"),
    ("pr", "pull", "merge"),
    ("process", "task", "job"),
    ("read", "view", "see", "display", "content"),
    ("rename", "move"),
    ("repo", "repository", "git", "github"),
    ("restaurant", "cafe", "dining"),
    ("review", "rating", "feedback"),
    ("save", "store", "write", "persist"),
    ("screenshot", "snapshot", "capture"),
    ("send", "post", "publish", "submit"),
    ("shell", "terminal", "command", "bash", "console"),
    ("shop", "store", "product", "shopping"),
    ("sport", "match", "league", "team"),
    ("stock", "share", "equity", "ticker"),
    ("summary", "summarize", "summarise", "abstract", "overview"),
    ("test", "check", "verify", "validate"),
    ("time", "clock", "timezone", "date"),
    ("train", "railway", "rail"),
    ("translate", "translation", "language"),
    ("undo", "revert", "reset", "restore"),
    ("upload", "push", "send"),
    ("video", "youtube", "clip"),
    ("word", "docx"),
    ("excel", "spreadsheet", "xlsx", "sheet", "workbook"),
    ("slide", "slides", "powerpoint", "presentation", "pptx"),
    ("zip", "compress", "archive"),
)
"""Groups of words that stand for one another where tools are concerned; stemmed when read."""
