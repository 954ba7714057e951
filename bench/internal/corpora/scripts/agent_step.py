# One step of an agent session in a Go workspace: python3 agent_step.py WORKSPACE STEP. Deterministic by STEP:
# appends to a log and an SQLite file, edits sources so that they still compile, writes drafts, moves directories.
import os,sys,random,sqlite3,shutil,re
ws,step=sys.argv[1],int(sys.argv[2]); r=random.Random(7777+step)
def gofiles(test=False):
    out=[]
    for a,ds,fs in os.walk(ws):
        ds.sort()
        rel=os.path.relpath(a,ws)
        if rel.startswith(('vendor','bin','docs-agent')) or 'testdata' in rel: continue
        for f in sorted(fs):
            if f.endswith('.go') and (test or not f.endswith('_test.go')): out.append(os.path.join(a,f))
    return out
src=[f for f in gofiles() if '/internal/' in f]
words=[w for f in src[:60] for w in re.findall(r'[A-Za-z]{4,12}',open(f).read())][:20000]
def text(n): return ' '.join(r.choice(words) for _ in range(n))
# sqlite db
db=sqlite3.connect(f"{ws}/agent.db")
db.execute("create table if not exists msg(id integer primary key, ts integer, role text, content text)")
db.execute("create index if not exists msg_ts on msg(ts)")
n=3000 if step==0 else 20
for i in range(n): db.execute("insert into msg(ts,role,content) values(?,?,?)",(1700000000+step*3600+i,r.choice(['user','assistant','tool']),text(r.randrange(10,120))))
if step:
    mx=db.execute("select max(id) from msg").fetchone()[0]
    for i in range(5): db.execute("update msg set content=? where id=?",(text(40),r.randrange(1,mx)))
    db.execute("delete from msg where id=?",(r.randrange(1,mx),))
db.commit(); db.close()
with open(f"{ws}/agent.db","r+b") as h: h.seek(96); h.write((3040001).to_bytes(4,"big")) # SQLite leaves its own version in the header
# log
with open(f"{ws}/agent.log","a") as h:
    for i in range(400 if step==0 else r.randrange(20,150)):
        h.write(f"2026-01-{1+step%28:02d}T{i//60%24:02d}:{i%60:02d}:{r.randrange(60):02d}.{r.randrange(1000):03d}Z level=info req={r.getrandbits(64):016x} tool={r.choice(['read','edit','bash','grep'])} path={r.choice(src)[len(ws):]} ms={r.randrange(5000)} msg=\"{text(5)}\"\n")
if step==0: sys.exit()
for k in range(r.randrange(1,6)):
    f=r.choice(src); s=open(f).read(); lines=s.split('\n'); kind=r.random()
    if kind<0.45:
        idx=[i for i,l in enumerate(lines) if 'Errorf("' in l or 'errors.New("' in l]
        if idx:
            i=r.choice(idx); lines[i]=re.sub(r'(Errorf|errors\.New)\("',lambda m:m.group(0)+f"{r.choice(words)} {step}: ",lines[i],count=1)
        else: kind=0.6
    if 0.45<=kind<0.7:
        i=r.randrange(len(lines)//2,len(lines)); lines.insert(i,f"// {text(8)} ({step})") if not any('`' in l for l in lines) else lines.append(f"// {text(8)} ({step})")
    elif 0.7<=kind<0.9:
        nm=f"agentHelper{step}x{k}"; lines+=["//go:noinline",f"func {nm}(x int) int {{ if x > {r.randrange(1000)} {{ return x * {r.randrange(100)} }}; return x + {r.randrange(1000)} }}","",f"func init() {{ if {nm}({r.randrange(50)}) == -1 {{ panic(\"{text(6)}\") }} }}"]
    elif kind>=0.9:
        idx=[i for i,l in enumerate(lines) if re.match(r'\t+// [A-Za-z]',l)]
        if idx: del lines[r.choice(idx)]
    open(f,'w').write('\n'.join(lines))
base=f"{ws}/docs-agent"; os.makedirs(base,exist_ok=True)
if step%7==0:
    d=f"{base}/task{step}"; os.makedirs(d)
    for i in range(6):
        s=open(r.choice(src)).read().split('\n'); open(f"{d}/draft{i}.go.txt",'w').write('\n'.join(s[:r.randrange(50,400)])+'\n'+text(30)+'\n')
    open(f"{d}/NOTES.md",'w').write(text(400)+'\n')
ds=sorted(x for x in os.listdir(base))
if step%11==0 and ds:
    x=r.choice(ds); os.rename(f"{base}/{x}",f"{base}/renamed{step}-{x}")
if step%22==0 and os.path.isdir(f"{ws}/doc" if step==22 else f"{ws}/doc-moved"):
    a,b=("doc","doc-moved") if step==22 else ("doc-moved","doc"); os.rename(f"{ws}/{a}",f"{ws}/{b}") if not os.path.exists(f"{ws}/{b}") else None
if step%13==0 and len(ds)>1:
    ds=sorted(os.listdir(base)); shutil.rmtree(f"{base}/{ds[0]}")
