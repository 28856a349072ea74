# What tools/wheel runs with an installed wheel, in an empty folder beside tools/tinygpt and wheel.py: the session of
# README.md.
set -euo pipefail
options=(--layers 2 --clip-grad 0)  # it clips by what came with PyTorch 2.6
train=(python ../tinygpt/train.py "${options[@]}")
parallel=(torchrun --standalone --nproc-per-node 2 ../tinygpt/train.py "${options[@]}" --tp 2 --sp)
ttrace --version
ttrace collect -o reference -- "${train[@]}"
ttrace estimate-tolerance --reference reference -o tolerance.yaml -- "${train[@]}"
ttrace collect -o correct --axes tp=2,sp=tp -- "${parallel[@]}"
ttrace collect -o buggy --axes tp=2,sp=tp -- "${parallel[@]}" --bug embedding-mask
check=(check --reference reference -a megatron_gpt -t tolerance.yaml)
ttrace "${check[@]}" --candidate correct
code=0
ttrace "${check[@]}" --candidate buggy --html page.html || code=$?
((code == 1))
python ../wheel.py
