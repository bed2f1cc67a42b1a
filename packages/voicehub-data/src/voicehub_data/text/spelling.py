"""British spellings to American ones, by stems and endings rather than by a long word list."""

from __future__ import annotations

import re

# Words whose -our becomes -or, without the ending.
_OUR = (
    "arb|ard|arm|behavi|cand|clam|clang|col|demean|endeav|enam|fav|ferv|fl|glam|harb|hon|hum|"
    "lab|misdemean|neighb|od|parl|ranc|rig|rum|sav|sav|splend|succ|tum|val|vap|vig"
)
_OUR_WORD = re.compile(
    rf"\b(dis|mis|un)?({_OUR})our(s|ed|ing|er|ers|able|ably|ful|fully|hood|hoods|ite|ites|less|"
    r"ly|y|ed|al|ally|ist|ists)?\b"
)
_OUR_KEPT = {"flour", "flours", "floured", "glamour", "parlours", "floury"}
# Verbs in -ise/-yse; many words in -ise are not verbs of this kind, so stems are listed.
_ISE = (
    "agon|american|analog|anim|apolog|author|baptis|brutal|capital|categor|central|character|"
    "civil|colon|commercial|critic|crystall|custom|demon|demoral|dramat|econom|emphas|energ|"
    "equal|fantas|fertil|final|formal|general|global|harmon|hospital|human|idol|immun|industrial|"
    "item|jeopard|legal|liberal|local|materi|maxim|memor|minim|mobil|modern|monopol|moral|mot|"
    "national|natural|neutral|normal|optim|organ|disorgan|reorgan|oxid|patron|penal|personal|"
    "polar|popular|prior|privat|public|random|rational|real|recogn|revolution|scrutin|sensit|"
    "social|special|stabil|standard|steril|summar|symbol|sympath|synchron|terror|theor|traumat|"
    "util|vandal|verbal|visual|vocal|normal|initial|material|computer|digit"
)
_ISE_WORD = re.compile(rf"\b(un|re|de)?({_ISE})is(e|es|ed|ing|er|ers|ation|ations|ational|able)\b")
_YSE_WORD = re.compile(r"\b(anal|paral|catal|electrol)ys(e|ed|es|ing|er|ers)\b")
_RE_WORD = re.compile(
    r"\b((?:kilo|centi|milli|nano|micro)?(?:met|lit)|cent|epicent|fib|theat|amphitheat|calib|goit|"
    r"lust|lacklust|meag|mit|nit|saltpet|sab|scept|sepulch|somb|spect)re(s|d)?\b"
)
_DOUBLED = re.compile(
    r"\b(cancel|channel|counsel|dial|duel|enamel|enrol|equal|fuel|fulfil|funnel|initial|jewel|"
    r"label|level|libel|marvel|model|panel|pedal|pencil|quarrel|rival|shovel|shrivel|signal|"
    r"snivel|spiral|squirrel|stencil|swivel|total|towel|travel|tunnel|unravel|wool)"
    r"l(ed|ing|er|ers|ings|ous|ery|en)\b"
)
_WORDS = {
    "aeroplane": "airplane", "aeroplanes": "airplanes", "ageing": "aging",
    "aluminium": "aluminum", "catalogue": "catalog", "catalogues": "catalogs",
    "cheque": "check", "cheques": "checks", "chequered": "checkered", "cosy": "cozy",
    "defence": "defense", "defences": "defenses", "dialogue": "dialog", "dialogues": "dialogs",
    "disc": "disk", "discs": "disks", "doughnut": "donut", "doughnuts": "donuts",
    "draught": "draft", "draughts": "drafts", "enrol": "enroll", "enrols": "enrolls",
    "enrolment": "enrollment", "fulfil": "fulfill", "fulfils": "fulfills",
    "fulfilment": "fulfillment", "grey": "gray", "greys": "grays", "greyish": "grayish",
    "instalment": "installment", "instalments": "installments", "jewellery": "jewelry",
    "judgement": "judgment", "judgements": "judgments", "kerb": "curb", "kerbs": "curbs",
    "licence": "license", "licences": "licenses", "manoeuvre": "maneuver",
    "manoeuvres": "maneuvers", "mould": "mold", "moulds": "molds", "moustache": "mustache",
    "offence": "offense", "offences": "offenses", "paediatric": "pediatric",
    "plough": "plow", "ploughs": "plows", "ploughed": "plowed", "ploughing": "plowing",
    "practise": "practice", "practised": "practiced", "practises": "practices",
    "practising": "practicing", "pretence": "pretense", "programme": "program",
    "programmes": "programs", "pyjamas": "pajamas", "sceptic": "skeptic",
    "sceptical": "skeptical", "sceptics": "skeptics", "skilful": "skillful",
    "skilfully": "skillfully", "smoulder": "smolder", "smouldering": "smoldering",
    "storey": "story", "storeys": "stories", "sulphur": "sulfur", "tonne": "ton",
    "tonnes": "tons", "tyre": "tire", "tyres": "tires", "whisky": "whiskey",
    "wilful": "willful", "woollen": "woolen", "anaesthetic": "anesthetic",
    "encyclopaedia": "encyclopedia", "foetus": "fetus", "haemorrhage": "hemorrhage",
    "mediaeval": "medieval", "oesophagus": "esophagus", "orthopaedic": "orthopedic",
}  # fmt: skip
_LETTER_RUN = re.compile(r"[a-z]+")


def americanise(text: str) -> str:
    """Rewrite British spellings in lower-case text."""
    text = _OUR_WORD.sub(_our, text)
    text = _ISE_WORD.sub(lambda m: f"{m[1] or ''}{m[2]}iz{m[3]}", text)
    text = _YSE_WORD.sub(lambda m: f"{m[1]}yz{m[2]}", text)
    text = _RE_WORD.sub(lambda m: f"{m[1]}er{'ed' if m[2] == 'd' else m[2] or ''}", text)
    text = _DOUBLED.sub(lambda m: f"{m[1]}{m[2]}" if m[1] not in _LL else m[0], text)
    return _LETTER_RUN.sub(lambda m: _WORDS.get(m[0], m[0]), text)


# These double their l in American English too.
_LL = frozenset({"enrol", "fulfil"})


def _our(match: re.Match[str]) -> str:
    if match[0] in _OUR_KEPT:
        return match[0]
    return f"{match[1] or ''}{match[2]}or{match[3] or ''}"
