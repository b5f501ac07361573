//! Filter rules and changes of modes.

pub fn filter_rules() -> Vec<Vec<u8>> {
    let lists: [&[u8]; 3] = [
        b"- *.o\n+ /a/b/\n-!/ [!a-c]*\nP x\n",
        b": .rules\n:nw-sp ../up/.q\n-srp dir/***\n",
        b"- **/[[:alpha:]x]?\n+ a\\*b**c\nhide,p *a*b*c*\n- a/**/b\n",
    ];
    lists.map(|list| list.strip_suffix(b"\n").unwrap_or(list).to_vec()).into()
}

pub fn modes() -> Vec<Vec<u8>> {
    ["D2775,F664", "u=rwX,go-w", "g=u", "+t,ug+s,Do-x", "a=,o=g,F0"].map(|text| text.into()).to_vec()
}
